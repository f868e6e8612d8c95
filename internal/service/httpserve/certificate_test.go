package httpserve

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// writeCertificate makes a certificate for 127.0.0.1 with a name.
func writeCertificate(t *testing.T, dir, name string, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key
}

// A new certificate is used by who connects after its files have changed, and files that do not fit leave the old one.
func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	cert, key := writeCertificate(t, dir, "first", 1)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	_, err := Listen(t.Context(), Config{
		Address: "127.0.0.1:0", Cert: cert, Key: filepath.Join(dir, "none"), Handler: http.NotFoundHandler(),
		Log: logger,
	})
	require.ErrorContains(t, err, "TLS certificate "+cert+" with key "+filepath.Join(dir, "none"))
	_, err = Listen(t.Context(), Config{Address: "127.0.0.1:0", Cert: cert, Key: "", Handler: http.NotFoundHandler(), Log: logger})
	require.ErrorContains(t, err, "give both")

	s, err := Listen(t.Context(), Config{Address: "127.0.0.1:0", Cert: cert, Key: key, Handler: http.NotFoundHandler(), Log: logger})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop(t.Context(), time.Second)) }()
	name := func() string {
		conn, err := tls.Dial("tcp", s.Addr(), &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	require.Equal(t, "first", name())
	require.NoError(t, os.WriteFile(cert, []byte("half"), 0o600))
	require.Equal(t, "first", name())
	writeCertificate(t, dir, "second", 2)
	require.Eventually(t, func() bool { return name() == "second" }, 10*time.Second, 20*time.Millisecond)

	plain, err := Listen(t.Context(), Config{Address: "127.0.0.1:0", Handler: http.NotFoundHandler(), Log: logger})
	require.NoError(t, err)
	resp, err := http.Get("http://" + plain.Addr())
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.NoError(t, plain.Stop(t.Context(), time.Second))
}

// A certificate that could not be read when its files had changed, for what leaves no trace in their times and sizes, such as their owner
// or too many open files, is read when it can be. Here the content is what was wrong.
func TestCertificateThatCouldNotBeReadForAMoment(t *testing.T) {
	dir := t.TempDir()
	cert, key := writeCertificate(t, dir, "first", 1)
	var log bytes.Buffer
	c, err := loadCertificate(cert, key, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	first := c.now
	writeCertificate(t, dir, "second", 2)
	good, err := os.ReadFile(key)
	require.NoError(t, err)
	at := time.Now().Add(-time.Minute)
	write := func(text []byte) {
		require.NoError(t, os.WriteFile(key, text, 0o600))
		require.NoError(t, os.Chtimes(key, at, at))
	}
	look := func() bool {
		c.readAt = time.Time{}
		now, err := c.get(nil)
		require.NoError(t, err)
		return now != first
	}
	write(bytes.Repeat([]byte("x"), len(good)))
	for range 3 {
		require.False(t, look())
	}
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("cannot be read again")))
	write(good)
	require.True(t, look(), "the certificate of before is served until the files change again")
}
