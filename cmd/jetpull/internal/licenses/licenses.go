// Package licenses prints the licence notices of all modules in the command. make licenses generates them.
package licenses

import (
	_ "embed"
	"io"

	"github.com/spf13/cobra"
)

//go:embed licenses.txt
var text string

// New is the command.
func New() *cobra.Command {
	return &cobra.Command{
		Use: "licenses", Short: "Print the licences of the software that jetpull contains",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
}
