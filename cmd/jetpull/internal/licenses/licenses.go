// Package licenses prints the licence notices of all modules in the command. "make licenses" generates them.
package licenses

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"

	"github.com/spf13/cobra"
)

//go:embed licenses.txt.gz
var packed []byte

// New returns the command licenses.
func New() *cobra.Command {
	return &cobra.Command{
		Use: "licenses", Short: "Print the licences of the software that jetpull contains",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := gzip.NewReader(bytes.NewReader(packed))
			if err != nil {
				return err
			}
			_, err = io.Copy(cmd.OutOrStdout(), text)
			return err
		},
	}
}
