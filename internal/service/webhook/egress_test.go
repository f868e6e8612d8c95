package webhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newProxy is a proxy that allows CONNECT for a user, and notes what it is asked for.
func newProxy(t *testing.T, asked *atomic.Pointer[string]) *url.URL {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := r.Method + " " + r.Host
		asked.Store(&target)
		if r.Header.Get("Proxy-Authorization") != "Basic dTpwdw==" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		to, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() { _, _ = io.Copy(to, conn); _ = to.Close() }()
		_, _ = io.Copy(conn, to)
		_ = conn.Close()
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	u.User = url.UserPassword("u", "pw")
	return u
}

// Through a proxy the addresses are checked as without one: it is asked for the address that was checked, and for no forbidden one.
func TestProxy(t *testing.T) {
	var asked atomic.Pointer[string]
	proxy := newProxy(t, &asked)
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	defer plain.Close()
	defer secure.Close()
	certificates := t.TempDir()
	write(t, filepath.Join(certificates, "k", "ca.crt"), pemOf("CERTIFICATE", secure.Certificate().Raw))
	policy, err := Policy{Any: true}.Through(proxy.String(), certificates)
	require.NoError(t, err)
	c := NewClient(policy, 5*time.Second)
	defer c.Close()
	for _, target := range []string{plain.URL, secure.URL} {
		u, err := url.Parse(target)
		require.NoError(t, err)
		got, err := post(t, c, Request{URL: target, Identity: "k"})
		require.NoError(t, err)
		require.Equal(t, "ok", string(got.Body))
		require.Equal(t, "CONNECT "+u.Host, *asked.Load())
	}
	asked.Store(nil)
	_, err = post(t, c, Request{URL: "http://169.254.169.254/"})
	require.ErrorIs(t, err, ErrForbiddenAddress)
	policy.Any = false
	public := NewClient(policy, 5*time.Second)
	defer public.Close()
	_, err = post(t, public, Request{URL: "http://localhost:1/"})
	require.ErrorIs(t, err, ErrForbiddenAddress)
	require.ErrorIs(t, err, ErrNotSent)
	require.Nil(t, asked.Load(), "the proxy hears nothing of a forbidden address")

	_, err = post(t, c, Request{URL: "http://127.0.0.1:1/"})
	require.ErrorContains(t, err, "CONNECT 127.0.0.1:1: answered with 502 Bad Gateway")
	require.ErrorIs(t, err, ErrNotSent)
	require.NotContains(t, err.Error(), "pw")
	_, err = post(t, public, Request{URL: "http://name.invalid/"})
	require.ErrorContains(t, err, "a name is resolved here and not by egress-proxy")
	policy.Any, proxy.User = true, nil
	policy.Proxy = proxy
	_, err = post(t, NewClient(policy, 5*time.Second), Request{URL: plain.URL})
	require.ErrorContains(t, err, "407 Proxy Authentication Required")
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// issue writes a client certificate with a name of its own.
func issue(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	write(t, filepath.Join(dir, "tls.crt"), pemOf("CERTIFICATE", der))
	write(t, filepath.Join(dir, "tls.key"), pemOf("PRIVATE KEY", secret))
	made, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return made
}

// Each consumer has its own client certificate and authorities, which are read again when their files have changed.
func TestIdentities(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	folder := t.TempDir()
	one := filepath.Join(folder, "ch", "one")
	issue(t, one, "first")
	write(t, filepath.Join(one, "ca.crt"), pemOf("CERTIFICATE", server.Certificate().Raw))
	policy, err := Policy{Any: true}.Through("", folder)
	require.NoError(t, err)
	c := NewClient(policy, 5*time.Second)
	defer c.Close()
	call := func(identity string) (string, error) {
		got, err := post(t, c, Request{URL: server.URL, Identity: identity})
		if err != nil {
			return "", err
		}
		return string(got.Body), nil
	}
	got, err := call("ch/one")
	require.NoError(t, err)
	require.Equal(t, "first", got)
	for _, other := range []string{"", "ch/two", "ch/" + string(make([]byte, 300))} {
		_, err = call(other)
		require.ErrorContains(t, err, "certificate signed by unknown authority", other)
	}
	issue(t, one, "the second")
	later := func() bool { got, err = call("ch/one"); return err == nil && got == "the second" }
	require.Eventually(t, later, 10*time.Second, 10*time.Millisecond)
	write(t, filepath.Join(one, "tls.key"), []byte("none"))
	broken := func() bool { _, err = call("ch/one"); return err != nil }
	require.Eventually(t, broken, 10*time.Second, 10*time.Millisecond)
	require.ErrorContains(t, err, "egress-certificates: "+filepath.Join(one, "tls.crt"))
	require.ErrorIs(t, err, ErrNotSent)
	issue(t, one, "the third, of another size")
	require.Eventually(t, func() bool { got, err = call("ch/one"); return err == nil }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, os.Remove(filepath.Join(one, "ca.crt")))
	require.Eventually(t, broken, 10*time.Second, 10*time.Millisecond)
	require.ErrorContains(t, err, "unknown authority")
}
