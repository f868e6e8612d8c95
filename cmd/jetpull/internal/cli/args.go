package cli

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/internal/mask"
)

// UsageArgs makes what a check of the arguments finds a usage error.
func UsageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return Usage(err)
		}
		return nil
	}
}

// CheckURL refuses what is not the URL of an HTTP server.
func CheckURL(flag, text string) error {
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Usage(fmt.Errorf("%s %q is not a URL such as http://127.0.0.1:8080", flag, mask.URL(text)))
	}
	return nil
}
