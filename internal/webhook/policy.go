package webhook

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// ErrForbiddenAddress says that a name resolved to an address that requests
// must not go to.
var ErrForbiddenAddress = errors.New("address is not allowed for callbacks")

// Policy says which addresses requests may go to. The zero Policy allows the
// public internet only.
type Policy struct {
	// Any allows every address but those that are never a callback's: the
	// unspecified ones, multicast, and link-local, where clouds keep credentials.
	Any bool
	// Allowed networks are allowed whatever the rest says.
	Allowed []netip.Prefix
}

// reserved are the networks that are no public addresses, beside those that
// netip knows. Sources: the IANA special-purpose address registries.
var reserved = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	// IPv4 in the old forms of IPv6: compatible and translated.
	"::/96", "::ffff:0:0:0/96",
	"64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// Check returns ErrForbiddenAddress unless the address is allowed.
func (p Policy) Check(addr netip.Addr) error {
	// An IPv4 address in IPv6 form would slip past the IPv4 rules.
	addr = addr.Unmap().WithZone("")
	for _, network := range p.Allowed {
		if network.Contains(addr) {
			return nil
		}
	}
	switch {
	case !addr.IsValid(), addr.IsUnspecified(), addr.IsMulticast(), addr.IsLinkLocalUnicast():
		return fmt.Errorf("%w: %s", ErrForbiddenAddress, addr)
	case p.Any:
		return nil
	case addr.IsLoopback(), addr.IsPrivate():
		return fmt.Errorf("%w: %s is not public", ErrForbiddenAddress, addr)
	}
	for _, network := range reserved {
		if network.Contains(addr) {
			return fmt.Errorf("%w: %s is reserved", ErrForbiddenAddress, addr)
		}
	}
	return nil
}

// control checks an address between its resolution and the connection. It is
// what makes a name that resolves differently the second time harmless.
func (p Policy) control(network, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrForbiddenAddress, address)
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || (network != "tcp4" && network != "tcp6") {
		return fmt.Errorf("%w: %s %s", ErrForbiddenAddress, network, address)
	}
	return p.Check(addr)
}
