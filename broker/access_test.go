package broker

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// A broker that starts with HashTokens replaces the plain tokens in its store by hashes. Clients go on with the same tokens, also
// against a process that does not set HashTokens.
func TestPlainTokensAreHashedAtStart(t *testing.T) {
	cfg := testConfig(t)
	n := startNode(t, cfg)
	broadcast(t, n, "plain", "x", nil)
	require.Equal(t, "pt", n.store.Directory.Producers.List("")[0].Token)
	stopNode(t, n)
	cfg.Admin.HashTokens = true
	n = startNode(t, cfg)
	require.True(t, domain.Hashed(n.store.Directory.Producers.List("")[0].Token))
	require.True(t, domain.Hashed(n.store.Directory.Channels.List("")[0].Token))
	broadcast(t, n, "hashed", "x", nil)
	changed := n.store.Directory.Producers.List("")[0].ChangedAt
	stopNode(t, n)
	cfg.Admin.HashTokens = false
	n = startNode(t, cfg)
	broadcast(t, n, "again", "x", nil)
	require.Equal(t, changed, n.store.Directory.Producers.List("")[0].ChangedAt)
}

func TestTLSListener(t *testing.T) {
	cfg := testConfig(t)
	cfg.HTTP.TLSCert = filepath.Join("testdata", "cert.pem")
	_, err := Start(t.Context(), cfg, testLogger(t))
	require.ErrorContains(t, err, "[http] tls-cert")
	dir := t.TempDir()
	cfg.HTTP.TLSCert, cfg.HTTP.TLSKey = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	source := httptest.NewUnstartedServer(nil)
	source.StartTLS()
	defer source.Close()
	pair := source.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cfg.HTTP.TLSCert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(cfg.HTTP.TLSKey, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	n := startNode(t, cfg)
	require.True(t, strings.HasPrefix(n.URL(), "https://127.0.0.1:"))
	client := source.Client()
	resp, err := client.Get(n.URL() + "/healthz")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode)
}
