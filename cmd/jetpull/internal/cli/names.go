package cli

import (
	"cmp"
	"fmt"
	"math"
	"slices"
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

// Words are those that the arguments of a usage line stand for, in order, and how many arguments there can be.
func Words(use string) (words []string, least, most int) {
	for _, word := range strings.Fields(use)[1:] {
		words = append(words, strings.Trim(word, "[]."))
		most++
		if !strings.HasPrefix(word, "[") {
			least++
		}
		if strings.HasSuffix(word, "...]") {
			most = math.MaxInt
		}
	}
	return words, least, most
}

// Arguments wants as many arguments as the usage line has, and none that is empty, as of a shell's unset variable.
func Arguments(cmd *cobra.Command, args []string) error {
	if _, least, most := Words(cmd.Use); len(args) < least || len(args) > most || slices.Contains(args, "") {
		return fmt.Errorf("usage: %s, but the arguments are %q", cmd.UseLine(), args)
	}
	return nil
}

// StreamAndConsumer wants exactly the two names.
func StreamAndConsumer(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: %s, but the arguments are %q", cmd.UseLine(), args)
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
