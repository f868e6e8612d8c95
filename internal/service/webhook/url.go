package webhook

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jetpull/jetpull/internal/mask"
)

// CheckURL checks that raw is an absolute http or https URL with a host and a valid port. Its error shows no secrets.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	shown := mask.URL(raw)
	if err != nil {
		return fmt.Errorf("URL %q cannot be parsed: give an absolute URL", shown)
	}
	if u.IsAbs() && u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("URL %q has the scheme %s: give http:// or https:// and a host", shown, u.Scheme)
	}
	if !u.IsAbs() || u.Hostname() == "" {
		return fmt.Errorf("URL %q is not absolute: give http:// or https:// and a host", shown)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("URL %q has no port from 1 to 65535: give one", shown)
		}
	}
	return nil
}

// inBraces matches a placeholder, an opening brace that is not closed, and a closing brace that was not opened.
var inBraces = regexp.MustCompile(`\{[^{}]*\}?|\}`)

// CheckTemplate is like CheckURL, for a URL with placeholders such as {message_id}. It refuses other text in braces, which would be sent unchanged.
func CheckTemplate(raw string, placeholders ...string) error {
	if err := CheckURL(raw); err != nil {
		return err
	}
	for _, found := range inBraces.FindAllString(raw, -1) {
		if slices.Contains(placeholders, found) {
			continue
		}
		give := "write a brace as %7B or %7D"
		if len(placeholders) > 0 {
			give = "give " + strings.Join(placeholders, " or ") + ", or " + give
		}
		return fmt.Errorf("URL has %q, which is no placeholder here: %s", found, give)
	}
	return nil
}
