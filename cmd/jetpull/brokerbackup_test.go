package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
)

// brokerRun runs a command of jetpull broker that ends by itself.
func brokerRun(t *testing.T, args ...string) error {
	t.Helper()
	cmd := brokercmd.New()
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	return cmd.ExecuteContext(t.Context())
}

// A backup of a broker that is at work has everything that was answered before it began, and what was delivered then is not
// delivered again after a restore.
func TestBrokerBackupAndRestore(t *testing.T) {
	var mu sync.Mutex
	calls := map[string]int{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		id := r.Header.Get("X-Broker-Message-ID")
		if calls[id]++; id == "before-0" && calls[id] == 1 {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer receiver.Close()
	url, stop := listen(t, brokercmd.New(), "--admin-token", "secret", "--broker-retry-backoff-delays-in-seconds", "0")
	admin := map[string]string{"X-Broker-Admin-Token": "secret"}
	form := map[string]string{"X-Broker-Admin-Token": "secret", "Content-Type": "application/x-www-form-urlencoded"}
	put := func(path, body string) {
		code, text := brokerRequest(t, http.MethodPut, url+path, form, body)
		require.Equal(t, 200, code, text)
	}
	broadcast := func(url, id string) int {
		code, _ := brokerRequest(t, http.MethodPost, url+"/channel/c/broadcast", map[string]string{
			"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "p", "X-Broker-Producer-Token": "pt", "X-Broker-Message-ID": id,
		}, strings.Repeat(id, 100))
		return code
	}
	put("/producer/p", "token=pt")
	put("/channel/c", "token=ct")
	put("/channel/c/consumer/push", "token=kt&callbackUrl="+receiver.URL)
	put("/channel/c/consumer/pull", "token=kt&type=pull&callbackUrl="+receiver.URL)
	const before = 50
	for i := range before {
		require.Equal(t, 201, broadcast(url, fmt.Sprintf("before-%d", i)))
	}
	delivered := func(url, id string) bool {
		_, body := brokerRequest(t, http.MethodGet, url+"/channel/c/message/"+id, admin, "")
		return strings.Contains(body, `"Status":"DELIVERED"`)
	}
	for i := range before {
		require.Eventually(t, func() bool { return delivered(url, fmt.Sprintf("before-%d", i)) }, 20*time.Second, 5*time.Millisecond)
	}
	require.NoError(t, brokerRun(t, "health", "--url", url, "--admin-token", "secret"))

	ended, during := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(during)
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			default:
				broadcast(url, fmt.Sprintf("during-%d", i))
			}
		}
	}()
	dir := filepath.Join(t.TempDir(), "backup")
	require.ErrorContains(t, brokerRun(t, "backup", dir, "--url", url, "--admin-token", "wrong"), "401")
	require.NoError(t, brokerRun(t, "backup", dir, "--url", url, "--admin-token", "secret"))
	close(ended)
	<-during
	require.ErrorContains(t, brokerRun(t, "backup", dir, "--url", url, "--admin-token", "secret"), "is not empty")
	require.NoError(t, stop())
	require.Error(t, brokerRun(t, "health", "--url", url), "it has stopped")

	store := filepath.Join(t.TempDir(), "store")
	require.NoError(t, brokerRun(t, "restore", dir, "--store-dir", store))
	require.ErrorContains(t, brokerRun(t, "restore", dir, "--store-dir", store), "is not empty")
	mu.Lock()
	calls = map[string]int{}
	mu.Unlock()
	url, stop = listen(t, brokercmd.New(), "--admin-token", "secret", "--store-dir", store)
	for i := range before {
		require.True(t, delivered(url, fmt.Sprintf("before-%d", i)), i)
	}
	_, body := brokerRequest(t, http.MethodGet, url+"/channel/c/message/before-0", admin, "")
	require.Contains(t, body, `"Attempts":2`)
	_, body = brokerRequest(t, http.MethodGet, url+"/channel/c/consumer/pull/queued-jobs?limit=100",
		map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"}, "")
	require.GreaterOrEqual(t, strings.Count(body, `"MessageID":"before-`), before)
	require.Equal(t, 409, broadcast(url, "before-0"))
	require.Equal(t, 201, broadcast(url, "after"))
	require.Eventually(t, func() bool { return delivered(url, "after") }, 20*time.Second, 5*time.Millisecond)
	mu.Lock()
	for id := range calls {
		require.NotContains(t, id, "before-")
	}
	mu.Unlock()
	require.NoError(t, stop())

	// The server's own limit, three quarters of the free disk, does not hold for a restore, and --store-max holds after it.
	file := filepath.Join(dir, "broker_messages.copy")
	complete, err := os.ReadFile(file)
	require.NoError(t, err)
	changeCopy(t, dir, file, bytes.Replace(complete, []byte(`"max_bytes":-1`), []byte(`"max_bytes":1125899906842624`), 1))
	large := filepath.Join(t.TempDir(), "large")
	require.NoError(t, brokerRun(t, "restore", dir, "--store-dir", large))
	url, stop = listen(t, brokercmd.New(), "--admin-token", "secret", "--store-dir", large, "--store-max", "1KB")
	require.Eventually(t, func() bool { return broadcast(url, "over") == 503 }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, stop())
	changeCopy(t, dir, file, complete)

	// A damaged file is refused by name, before anything is restored.
	other := filepath.Join(t.TempDir(), "other")
	for what, damaged := range map[string][]byte{"cut": complete[:len(complete)-2], "changed": append([]byte("x"), complete[1:]...)} {
		require.NoError(t, os.WriteFile(file, damaged, 0o600))
		require.ErrorContains(t, brokerRun(t, "restore", dir, "--store-dir", other), "broker_messages.copy has", what)
		require.NoDirExists(t, other)
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "backup.json")))
	require.ErrorContains(t, brokerRun(t, "restore", dir, "--store-dir", other), "has no complete backup")
}

// changeCopy replaces a file of a backup, as if the backup had been made with it.
func changeCopy(t *testing.T, dir, file string, content []byte) {
	t.Helper()
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	manifest, err := os.ReadFile(filepath.Join(dir, "backup.json"))
	require.NoError(t, err)
	for _, change := range [][2]string{
		{fmt.Sprintf("%x", sha256.Sum256(before)), fmt.Sprintf("%x", sha256.Sum256(content))},
		{fmt.Sprintf(`"Bytes": %d`, len(before)), fmt.Sprintf(`"Bytes": %d`, len(content))},
	} {
		require.Contains(t, string(manifest), change[0])
		manifest = bytes.Replace(manifest, []byte(change[0]), []byte(change[1]), 1)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "backup.json"), manifest, 0o600))
	require.NoError(t, os.WriteFile(file, content, 0o600))
}

// The commands for a running broker sign what they ask, and trust the authority that they are given.
func TestBrokerBackupSignsAndChecksTheCertificate(t *testing.T) {
	source := httptest.NewTLSServer(nil)
	pair := source.TLS.Certificates[0]
	source.Close()
	secretKey, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key, empty := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "empty.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secretKey}), 0o600))
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	const secret = "a2V5" // "key"
	url, stop := listen(t, brokercmd.New(), "--admin-token", "admin", "--tls-cert", cert, "--tls-key", key,
		"--gateway-auth-mode", "hmac", "--gateway-auth-hmac-shared-secret", secret, "--gateway-auth-auth-exempt-paths", "/_status")
	run := func(args ...string) error { return brokerRun(t, append(args, "--url", url)...) }
	t.Setenv("JETPULL_BROKER_ADMIN_TOKEN", "admin")
	require.ErrorContains(t, run("health"), "certificate")
	require.ErrorContains(t, run("health", "--tlsca", filepath.Join(dir, "none")), "--tlsca")
	require.ErrorContains(t, run("health", "--tlsca", empty), "no certificate")
	require.NoError(t, run("health", "--tlsca", cert), "it needs no signature")
	copied := filepath.Join(dir, "backup")
	require.ErrorContains(t, run("backup", copied, "--tlsca", cert), "401")
	require.ErrorContains(t, run("backup", copied, "--tlsca", cert, "--gateway-auth-hmac-shared-secret", "!"), "base64")
	require.ErrorContains(t, run("backup", copied, "--tlsca", cert, "--gateway-auth-hmac-shared-secret", "b3RoZXI="), "403")
	t.Setenv("JETPULL_BROKER_GATEWAY_AUTH_HMAC_SHARED_SECRET", secret)
	require.NoError(t, run("backup", copied, "--tlsca", cert))
	require.FileExists(t, filepath.Join(copied, "backup.json"))
	require.NoError(t, stop())
}

// The help does not show the values of environment variables.
// A server's names of streams do not lead out of the folder of the backup.
func TestBrokerBackupStaysInItsFolder(t *testing.T) {
	for _, name := range []string{"../../out", "a/../../out", "/tmp/out", "..", "", "a/b"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/backup" {
				assert.NoError(t, json.NewEncoder(w).Encode(map[string][]string{"Streams": {"good", name}}))
			}
		}))
		parent := t.TempDir()
		err := brokerRun(t, "backup", "--url", server.URL, filepath.Join(parent, "a", "b"))
		server.Close()
		require.ErrorContains(t, err, fmt.Sprintf("names a stream %q", name))
		require.NoError(t, filepath.WalkDir(parent, func(path string, e os.DirEntry, err error) error {
			assert.True(t, e.IsDir(), path)
			return err
		}))
	}
}

func TestBrokerHelpShowsNoSecret(t *testing.T) {
	t.Setenv("JETPULL_BROKER_ADMIN_TOKEN", "very-secret")
	t.Setenv("JETPULL_BROKER_GATEWAY_AUTH_HMAC_SHARED_SECRET", "very-secret")
	for _, name := range []string{"backup", "health"} {
		var help strings.Builder
		cmd := brokercmd.New()
		cmd.SetArgs([]string{name, "--help"})
		cmd.SetOut(&help)
		require.NoError(t, cmd.ExecuteContext(t.Context()))
		require.Contains(t, help.String(), "--admin-token")
		require.NotContains(t, help.String(), "very-secret")
	}
}
