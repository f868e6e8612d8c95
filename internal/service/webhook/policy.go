package webhook

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"syscall"
)

// ErrForbiddenAddress reports that a name resolved to an address that requests must not reach.
var ErrForbiddenAddress = errors.New("address is not allowed for callbacks")

// Policy configures which addresses requests may reach. The zero Policy allows only the public internet.
type Policy struct {
	// Any allows every address except those that are never a receiver's: unspecified, multicast and link-local addresses, and other addresses at
	// which clouds serve credentials.
	Any bool
	// Allowed lists networks that are allowed whatever the other fields are.
	Allowed []netip.Prefix
	// Proxy is the URL of the HTTP proxy for requests. nil means none.
	Proxy *url.URL
	// Certificates is a folder with a folder for each Identity of a [Request], which has [identityFiles]. Empty means none.
	Certificates string
}

// Through returns the policy with the URL of a proxy and a folder of certificates. Each may be empty.
func (p Policy) Through(proxy, certificates string) (_ Policy, err error) {
	if proxy != "" {
		if p.Proxy, err = parseProxy(proxy); err != nil {
			return p, err
		}
	}
	if p.Certificates = certificates; certificates != "" {
		if info, err := os.Stat(certificates); err != nil || !info.IsDir() {
			return p, fmt.Errorf("egress-certificates: %q is not a folder that can be read", certificates)
		}
	}
	return p, nil
}

// reserved lists the networks that are not public, in addition to those that netip knows. Source: the IANA special-purpose address registries.
var reserved = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	// IPv4 in the old forms of IPv6: compatible and translated.
	"::/96", "::ffff:0:0:0/96",
	"64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
)

// metadata lists addresses, other than link-local ones, at which clouds serve credentials to their machines.
var metadata = prefixes(
	"fd00:ec2::254/128", "fd00:ec2::23/128", // AWS, and its Pod Identity
	"168.63.129.16/32",                            // Azure: the wire server, which is a public address
	"fd20:ce::254/128",                            // Google Cloud
	"100.100.100.200/32", "fd00:100::100:200/128", // Alibaba Cloud
	"192.0.0.192/32", "fd00:c1::a9fe:a9fe/128", // Oracle Cloud
	"fd00:a9fe:a9fe::1/128", // Akamai
	"fd00:42::42/128",       // Scaleway
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
	// An IPv4 address in IPv6 form would evade the IPv4 rules.
	addr = addr.Unmap().WithZone("")
	if within(p.Allowed, addr) {
		return nil
	}
	for _, inside := range embedded(addr) {
		if err := p.Check(inside); err != nil {
			return fmt.Errorf("%s stands for %s: %w", addr, inside, err)
		}
	}
	switch {
	case !addr.IsValid(), addr.IsUnspecified(), addr.IsMulticast(), addr.IsLinkLocalUnicast(), within(metadata, addr):
		return fmt.Errorf("%w: %s", ErrForbiddenAddress, addr)
	case p.Any:
		return nil
	case addr.IsLoopback(), addr.IsPrivate():
		return fmt.Errorf("%w: %s is not public", ErrForbiddenAddress, addr)
	case within(reserved, addr):
		return fmt.Errorf("%w: %s is reserved", ErrForbiddenAddress, addr)
	}
	return nil
}

func within(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// The forms of IPv6 addresses that represent an IPv4 address.
var (
	compatible = netip.MustParsePrefix("::/96")
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765
	nat64      = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215
	sixToFour  = netip.MustParsePrefix("2002::/16")       // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")       // RFC 4380
)

// embedded returns the IPv4 addresses into which a gateway may translate an IPv6 address. Which one it uses is unknown, so all of them count.
func embedded(addr netip.Addr) (inside []netip.Addr) {
	if !addr.Is6() || addr.IsUnspecified() || addr.IsLoopback() {
		return nil
	}
	b := addr.As16()
	add := func(v4 ...byte) {
		if a := netip.AddrFrom4([4]byte(v4)); !a.IsUnspecified() {
			inside = append(inside, a)
		}
	}
	switch {
	case compatible.Contains(addr), translated.Contains(addr), nat64.Contains(addr):
		add(b[12:]...)
	case localNAT64.Contains(addr):
		// The operator chooses a prefix of 48, 56, 64 or 96 bits. Byte 8 is always 0.
		add(b[6], b[7], b[9], b[10])
		add(b[7], b[9], b[10], b[11])
		add(b[9:13]...)
		add(b[12:]...)
	case sixToFour.Contains(addr):
		add(b[2:6]...)
	case teredo.Contains(addr):
		add(b[4:8]...)
		add(^b[12], ^b[13], ^b[14], ^b[15])
	}
	// ISATAP (RFC 5214) can have any prefix.
	if b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe {
		add(b[12:]...)
	}
	return inside
}

// control checks an address between its resolution and the connection. So a name that resolves to another address the second time does no harm.
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
