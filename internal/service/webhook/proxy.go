package webhook

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/jetpull/jetpull/internal/mask"
)

// parseProxy parses the URL of a proxy, which may have a user and a password. Its error does not show them.
func parseProxy(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Path != "" && u.Path != "/" {
		return nil, errors.New("egress-proxy: it is not the URL of an HTTP proxy: give one such as http://proxy.example:3128")
	}
	return u, nil
}

// tunnel dials through a proxy. It resolves names itself, and gives the proxy an address that the policy allows. At the proxy, the name
// could resolve to another address.
type tunnel struct {
	policy Policy
	proxy  *url.URL
}

// dial connects to an address with CONNECT, even for plain HTTP, because otherwise the request would name its host to the proxy.
func (t tunnel) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrForbiddenAddress, address)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("a name is resolved here and not by egress-proxy: %w", err)
	}
	for _, addr := range addrs {
		if err = t.policy.Check(addr); err != nil {
			continue
		}
		var conn net.Conn
		if conn, err = t.connect(ctx, net.JoinHostPort(addr.Unmap().String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

func (t tunnel) connect(ctx context.Context, target string) (conn net.Conn, err error) {
	port := map[string]string{"http": "80", "https": "443"}[t.proxy.Scheme]
	address := net.JoinHostPort(t.proxy.Hostname(), cmp.Or(t.proxy.Port(), port))
	if t.proxy.Scheme == "https" {
		conn, err = new(tls.Dialer).DialContext(ctx, "tcp", address)
	} else {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	if err == nil {
		if err = t.request(ctx, conn, target); err != nil {
			_ = conn.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("egress-proxy %s, CONNECT %s: %w", mask.URL(t.proxy.String()), target, err)
	}
	return conn, nil
}

func (t tunnel) request(ctx context.Context, conn net.Conn, target string) error {
	deadline, _ := ctx.Deadline() // dial has set a deadline
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{}}
	if user := t.proxy.User; user != nil {
		password, _ := user.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := r.Write(conn); err != nil {
		return err
	}
	buffered := bufio.NewReader(conn)
	resp, err := http.ReadResponse(buffered, r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // a refused connection is closed anyway, and a successful response has no body
	switch {
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("answered with %s", resp.Status)
	case buffered.Buffered() > 0:
		return errors.New("the proxy sent more than its answer")
	}
	return conn.SetDeadline(time.Time{})
}
