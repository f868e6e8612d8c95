package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// No command shows the password of an address or a DSN that it was given, whether it can be parsed or not.
func TestNoPasswordIsShown(t *testing.T) {
	const pw = "Pa55w0rd"
	t.Setenv("NATS_TIMEOUT", "100ms")
	dir := t.TempDir()
	config := filepath.Join(dir, "broker.cfg")
	require.NoError(t, os.WriteFile(config, []byte("[broker]\nevent-url = http://u:"+pw+"@h:x/?token="+pw+"\n"), 0o600))
	servers := []string{
		"nats://u:" + pw + "@127.0.0.1:x", "nats://u:" + pw + "@…:x", "nats://" + pw + "@127.0.0.1:1", "nats://u:12/" + pw + "@127.0.0.1:1",
		"u:" + pw + "@127.0.0.1:1",
		"nats://u:" + pw + "@127.0.0.1:1,nats://u:" + pw + "@…:x", "nats://u:%zz" + pw + "@127.0.0.1:1",
	}
	var lines [][]string
	for _, server := range servers {
		lines = append(
			lines,
			[]string{"broker", "--listen", "127.0.0.1:0", "--nats", server},
			[]string{"relay", "--listen", "127.0.0.1:0", "--nats", server},
			[]string{"consume", "--nats", server, "S", "c"},
			[]string{"publish", "--nats", server, "s", "x"},
			[]string{"feed", "--db", "sqlite:" + filepath.Join(dir, "f.db"), "--publish", "s", "--nats", server},
		)
	}
	for _, bad := range []string{"http://u:" + pw + "@…:x/?token=" + pw, "u:" + pw + "@h", "http://u:x/" + pw + "@h", "ftp://h/?" + pw} {
		lines = append(
			lines,
			[]string{"feed", "--db", "sqlite:" + filepath.Join(dir, "f.db"), "--handler", bad},
			[]string{"broker", "--broker-event-url", bad, "--listen", "127.0.0.1:0", "--store-dir", dir},
			[]string{"broker", "backup", "--url", bad, filepath.Join(dir, "b.tar")},
			[]string{"relay", "receivers", "ls", "--url", bad},
		)
	}
	for _, dsn := range []string{
		"postgres://u:" + pw + "@127.0.0.1:1/db", "postgres://u:" + pw + "@…:x/db", "postgres://u:12/" + pw + "@127.0.0.1:1/db",
		"postgres:password=" + pw + " host=127.0.0.1 port=1",
		"sqlserver://u:" + pw + "@127.0.0.1:1?database=x", "sqlserver://u:" + pw + "@…:x", "sqlserver://127.0.0.1:1?password=" + pw,
		"mysql://u:" + pw + "@h/db", "sqlite:/does/not/exist/f.db?_key=" + pw,
		"postgres://127.0.0.1:1/db?sslpassword=" + pw, "postgres://127.0.0.1:1/db?password=" + pw + "&sslmode=x",
	} {
		lines = append(lines, []string{"feed", "ls", "--db", dsn})
	}
	lines = append(lines,
		[]string{"broker", "--config", config, "--listen", "127.0.0.1:0", "--store-dir", dir},
		[]string{"broker", "backup", "--url", "http://u:" + pw + "@127.0.0.1:1/?t=" + pw, filepath.Join(dir, "b.tar")},
		[]string{"relay", "receivers", "ls", "--url", "http://" + pw + "@127.0.0.1:1"},
		[]string{"relay", "--listen", "127.0.0.1:0", "--store-dir", filepath.Join(dir, "r"), "--sentry-dsn", "https://" + pw + "@h:x/1"},
		[]string{"feed", "--db", "sqlite:" + filepath.Join(dir, "f.db"), "--handler", "http://u:" + pw + "@127.0.0.1:1/?token=" + pw, "--metrics", "x"},
	)
	for _, line := range lines {
		// A broker tries its NATS server until then.
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		var out, errOut buffer
		code := execute(ctx, line, strings.NewReader(""), &out, &errOut)
		cancel()
		assert.NotZero(t, code, "%q is no error", line)
		assert.NotContains(t, out.String()+errOut.String(), pw, "%q", line)
		assert.NotContains(t, errOut.String(), "unknown", "%q is no command", line)
	}
}
