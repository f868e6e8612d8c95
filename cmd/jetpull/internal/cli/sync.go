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
	flags.Var(&syncValue{sync, time.Duration(DefaultSync).String()}, "sync",
		"`WHEN` the embedded server syncs to disk: each, which is before it acknowledges a message, or an interval")
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

type syncValue struct {
	sync *natsembed.Sync
	text string
}

// Set implements pflag.Value.
func (s *syncValue) Set(text string) error {
	sync, err := natsembed.ParseSync(text)
	if err != nil || sync == natsembed.SyncGroup {
		return fmt.Errorf("it is neither each nor an interval of at least 10ms, such as %v", time.Duration(DefaultSync))
	}
	*s.sync, s.text = sync, text
	return nil
}

// String implements pflag.Value.
func (s *syncValue) String() string { return s.text }

// Type implements pflag.Value.
func (s *syncValue) Type() string { return "when" }
