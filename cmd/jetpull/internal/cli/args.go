package cli

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/internal/mask"
)

// CheckURL refuses what is not the URL of an HTTP server.
func CheckURL(flag, text string) error {
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Usage(fmt.Errorf("%s %q is not a URL such as http://127.0.0.1:8080", flag, mask.URL(text)))
	}
	return nil
}

// HeaderFlag adds the flag --header, which may be given for several headers.
func HeaderFlag(flags *pflag.FlagSet, headers *[]string) {
	flags.StringArrayVarP(headers, "header", "H", nil, "add the header `'NAME: VALUE'`; may be given several times")
}

// Header is the name and the value of a header as --header has it.
func Header(text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || name == "" {
		return "", "", Usage(fmt.Errorf("--header %q is not 'Name: value'", text))
	}
	return name, value, nil
}
