package relay

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The authorities of a receiver, and of a sender for its callbacks, are in folders that are named after them.
func TestCertificatesOfAReceiver(t *testing.T) {
	t.Parallel()
	called := make(chan struct{}, 1)
	peer := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/done" {
			called <- struct{}{}
		}
	}))
	t.Cleanup(peer.Close)
	folder, ca := t.TempDir(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: peer.Certificate().Raw})
	for _, name := range []string{"receivers/ci", "senders/git"} {
		require.NoError(t, os.MkdirAll(filepath.Join(folder, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name, "ca.crt"), ca, 0o600))
	}
	s := startSite(t, func(c *Config) { c.Relay.EgressCertificates = folder })
	s.receiver("ci", peer.URL, nil)
	s.want(200, "PUT", "/v1/senders/git", adminToken, object{"callback_endpoint": peer.URL + "/done", "token": "t", "sources": []string{""}})
	s.want(202, "POST", "/v1/messages", "t", message("a", "1", "ci"))
	s.awaitStatus("a", "1", "DONE")
	<-called
}
