package webhook

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/jetpull/jetpull/internal/mask"
)

// CheckURL checks that raw is an absolute http or https URL with a host and a port that exists. Its error shows no
// secret.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	shown := mask.URL(raw)
	if err != nil {
		return fmt.Errorf("callback URL %q cannot be parsed: give an absolute URL", shown)
	}
	if u.IsAbs() && u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("callback URL %q has the scheme %s: give http:// or https:// and a host", shown, u.Scheme)
	}
	if !u.IsAbs() || u.Host == "" {
		return fmt.Errorf("callback URL %q is not absolute: give http:// or https:// and a host", shown)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("callback URL %q has no port from 1 to 65535: give one", shown)
		}
	}
	return nil
}
