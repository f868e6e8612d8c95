package brokercmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// originalFlags are the flags of webhook-broker, which have one dash in its documents.
var originalFlags = []string{"config", "migrate", "command", "stop-on-conf-change", "do-not-watch-conf-change"}

// WithOriginalFlags gives the flags of webhook-broker that follow the name of the broker's command a second dash.
func WithOriginalFlags(args []string) []string {
	if len(args) == 0 || args[0] != "broker" {
		return args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && slices.Contains(originalFlags, name) {
			args[i] = "-" + arg
		}
	}
	return args
}

// original are those of its flags that have no use here.
type original struct {
	migrate, command   string
	stopOnChange, keep bool
}

func (o *original) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.migrate, "migrate", "", "has no effect: there is no database")
	flags.StringVar(&o.command, "command", "broker", "broker is all that there is")
	flags.BoolVar(&o.stopOnChange, "stop-on-conf-change", false, "has no effect: the configuration is read at the start")
	flags.BoolVar(&o.keep, "do-not-watch-conf-change", false, "has no effect: the configuration is read at the start")
	for _, name := range originalFlags[1:] {
		_ = flags.MarkHidden(name) // it exists
	}
}

func (o *original) check() error {
	if o.command != "broker" {
		return cli.Usage(fmt.Errorf("--command %q is not known: a broker is all that this command runs, and it prunes by itself (--prune-message-retention-days)", o.command))
	}
	return nil
}

// warnings say what has no effect.
func (o *original) warnings() (warnings []string) {
	if o.migrate != "" {
		warnings = append(warnings, fmt.Sprintf("--migrate %q has no effect: there is no database", o.migrate))
	}
	if o.stopOnChange {
		warnings = append(warnings, "--stop-on-conf-change has no effect: the configuration is read at the start, so restart the broker when it changes")
	}
	return warnings
}
