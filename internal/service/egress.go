package service

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/jetpull/jetpull/internal/service/webhook"
)

// Egress configures the destinations of outgoing requests, and their route.
type Egress struct {
	Networks           string // the allowed networks: auto, public, any, or a list
	EgressProxy        string // the URL of an HTTP proxy for the requests; empty means none
	EgressCertificates string // the folder of client certificates and authorities; empty means none
}

// Policy returns the destinations that Networks allows: public, any, a list of networks in CIDR notation in addition to the public ones, or auto.
// With auto, any destination is allowed if the listener is on loopback, and only public ones otherwise. Errors name the section of the settings.
func (e Egress) Policy(section, listener string) (p webhook.Policy, err error) {
	switch e.Networks {
	case "any":
		p.Any = true
	case "public":
	case "auto":
		p.Any, _ = Loopback(listener) // HTTP.Check refuses an invalid listener
	default:
		for part := range strings.SplitSeq(e.Networks, ",") {
			prefix, err := netip.ParsePrefix(strings.TrimSpace(part))
			if err != nil {
				return p, fmt.Errorf("[%s] networks: %q is neither auto, public, any nor a network such as 10.0.0.0/8", section, part)
			}
			p.Allowed = append(p.Allowed, prefix)
		}
	}
	if p, err = p.Through(e.EgressProxy, e.EgressCertificates); err != nil {
		err = fmt.Errorf("[%s] %w", section, err)
	}
	return p, err
}

// Networks returns the setting of Egress.Networks. what names the requests.
func Networks[C any](section, what, system string, of func(*C) *Egress) Setting[C] {
	return Text(section, "networks", "auto", "networks that "+what+" may reach: public, any, networks such as 10.0.0.0/8 in addition to the public "+
		"ones, or auto, which is any if the "+system+" listens on loopback, and public otherwise", func(c *C) *string { return &of(c).Networks })
}

// Proxy returns the setting of Egress.EgressProxy.
func Proxy[C any](section, what string, of func(*C) *Egress) Setting[C] {
	return Text(section, "egress-proxy", "", "URL of an HTTP proxy for "+what+", which must allow CONNECT; names are resolved here, so that networks "+
		"holds; empty: none", func(c *C) *string { return &of(c).EgressProxy })
}

// Certificates returns the setting of Egress.EgressCertificates. names is the form of the identities' paths in the folder.
func Certificates[C any](section, names string, of func(*C) *Egress) Setting[C] {
	return Text(section, "egress-certificates", "", "folder with a folder "+names+" that has tls.crt and tls.key, a client certificate, or ca.crt, "+
		"authorities to trust in addition to the system's; read again when they change; empty: none",
		func(c *C) *string { return &of(c).EgressCertificates })
}
