package service

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/jetpull/jetpull/internal/service/webhook"
)

// Egress says where requests may go, and by which way.
type Egress struct {
	Networks           string // the allowed addresses: auto, public, any, or a list of networks
	EgressProxy        string // the URL of an HTTP proxy for the requests; empty: none
	EgressCertificates string // the folder of client certificates and authorities; empty: none
}

// Policy reads where requests may go: public, any, auto, which is any behind a listener on loopback and public otherwise, or a list of
// networks in CIDR notation that are allowed beside the public ones. Errors name the section of the settings.
func (e Egress) Policy(section, listener string) (p webhook.Policy, err error) {
	switch e.Networks {
	case "any":
		p.Any = true
	case "public":
	case "auto":
		p.Any, _ = Loopback(listener) // CheckListener refuses what is no listener
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

// Networks is the setting of an Egress by that name. what are the requests.
func Networks[C any](section, what, system string, of func(*C) *Egress) Setting[C] {
	return Text(section, "networks", "auto", "networks that "+what+" may reach: public, any, networks such as 10.0.0.0/8 in addition to the public "+
		"ones, or auto, which is any if the "+system+" listens on loopback, and public otherwise", func(c *C) *string { return &of(c).Networks })
}

// Proxy is the setting of the proxy.
func Proxy[C any](section, what string, of func(*C) *Egress) Setting[C] {
	return Text(section, "egress-proxy", "", "URL of an HTTP proxy for "+what+", which must allow CONNECT; names are resolved here, so that networks "+
		"holds; empty: none", func(c *C) *string { return &of(c).EgressProxy })
}

// Certificates is the setting of the folder, in which names are the paths of identities.
func Certificates[C any](section, names string, of func(*C) *Egress) Setting[C] {
	return Text(section, "egress-certificates", "", "folder with a folder "+names+" that has tls.crt and tls.key, a client certificate, or ca.crt, "+
		"authorities to trust in addition to the system's; read again when they change; empty: none",
		func(c *C) *string { return &of(c).EgressCertificates })
}
