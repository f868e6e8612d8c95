package cli

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/natsembed"
)

// DefaultSync is how often the server of a user's data syncs. Its clients publish over TCP, so they cannot wait for a group sync.
const DefaultSync = natsembed.Sync(2 * time.Second)

// Sync adds the flag --sync for an embedded server.
func Sync(flags *pflag.FlagSet, sync *natsembed.Sync) {
	*sync = DefaultSync
	const usage = "`WHEN` the embedded server syncs to disk: each, which is before it acknowledges a message, or an interval"
	flags.Func("sync", usage, func(text string) error {
		given, err := natsembed.ParseSync(text)
		if err != nil || given == natsembed.SyncGroup {
			return fmt.Errorf("it is neither each nor an interval of at least 10ms, such as %v", time.Duration(DefaultSync))
		}
		*sync = given
		return nil
	})
	flags.Lookup("sync").DefValue = time.Duration(DefaultSync).String()
}

// Synced says what a loss of power takes from an embedded server.
func Synced(sync natsembed.Sync) string {
	switch sync {
	case natsembed.SyncEach:
		return "synced at each message"
	case natsembed.SyncGroup:
		sync = DefaultSync
	}
	return fmt.Sprintf("synced every %v: a loss of power takes what was stored since", time.Duration(sync))
}
