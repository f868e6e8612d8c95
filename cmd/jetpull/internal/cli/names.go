package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/internal/wire"
)

// CheckName refuses what cannot be the name of a stream or a consumer.
func CheckName(of, name string) error {
	if name == "" || strings.ContainsAny(name, " \t\r\n\f.*>/\\") {
		return Usage(fmt.Errorf("%q is not the name of a %s: it must not be empty nor contain spaces, dots, slashes, * or >", name, of))
	}
	return nil
}

// StreamAndConsumer wants exactly the two names.
func StreamAndConsumer(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%s wants the names of a stream and a consumer, not %d arguments %q", cmd.Name(), len(args), args)
	}
	return cmp.Or(CheckName("stream", args[0]), CheckName("consumer", args[1]))
}

// CheckGroup refuses what cannot be the name of a priority group.
func CheckGroup(name string) error {
	if err := wire.ValidGroup(name); err != nil {
		return Usage(fmt.Errorf("--group: %w", err))
	}
	return nil
}
