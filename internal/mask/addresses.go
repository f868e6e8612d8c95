package mask

import (
	"net/netip"
	"regexp"
	"strings"
)

// addressLike is text that may be an IP address, with or without a port.
var addressLike = regexp.MustCompile(`[0-9A-Fa-f:.\[]*[:.][0-9A-Fa-f:.]*(?:%[0-9A-Za-z]+)?(?:\](?::[0-9]+)?)?:?`)

// Addresses is text, such as that of an error of the network, without the IP addresses in it: which address a name has, and which DNS server says so,
// is for the operator to know.
func Addresses(text string) string {
	return addressLike.ReplaceAllStringFunc(text, func(found string) string {
		for _, end := range []string{"", ":", "."} {
			address, ok := strings.CutSuffix(found, end)
			if ok && isAddress(address) {
				return hidden + end
			}
		}
		return found
	})
}

func isAddress(text string) bool {
	if _, err := netip.ParseAddrPort(text); err == nil {
		return true
	}
	if inside, ok := strings.CutPrefix(text, "["); ok {
		if text, ok = strings.CutSuffix(inside, "]"); !ok {
			return false
		}
	}
	_, err := netip.ParseAddr(text)
	return err == nil
}
