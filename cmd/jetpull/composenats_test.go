package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd"
	"github.com/jetpull/jetpull/test/servertest"
)

// makeCredentials runs the script of compose.yaml's service credentials and returns the files that it made: for the servers, the
// brokers and the relays.
func makeCredentials(t *testing.T, natsDir, brokerDir, relayDir string) (conf string, cfgs []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "../../deploy/nats-credentials.sh", natsDir, brokerDir, relayDir).CombinedOutput()
	require.NoError(t, err, string(out))
	var texts []string
	for _, name := range []string{filepath.Join(natsDir, "nats.conf"), filepath.Join(brokerDir, "broker.cfg"), filepath.Join(relayDir, "relay.cfg")} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		texts = append(texts, string(text))
	}
	return texts[0], texts[1:]
}

// The passwords of compose.yaml are made once, also where the first start was interrupted.
func TestComposeCredentialsAreMadeOnce(t *testing.T) {
	needTool(t, "sh", "dash")
	natsDir, brokerDir, relayDir := t.TempDir(), t.TempDir(), t.TempDir()
	conf, cfg := makeCredentials(t, natsDir, brokerDir, relayDir)
	again, cfgAgain := makeCredentials(t, natsDir, brokerDir, relayDir)
	require.Equal(t, conf, again)
	require.Equal(t, cfg, cfgAgain)

	require.NoError(t, os.Rename(filepath.Join(brokerDir, "broker.cfg"), filepath.Join(brokerDir, "broker.cfg.new")))
	other, _ := makeCredentials(t, natsDir, brokerDir, relayDir)
	require.NotEqual(t, conf, other)
	left, err := filepath.Glob(filepath.Join(brokerDir, "*"))
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing is left of the first try")
}

// The NATS servers of compose.yaml form a cluster, let only brokers and relays in, and both work on them.
func TestComposeNATSNeedsCredentials(t *testing.T) {
	t.Parallel()
	needTool(t, "sh", "dash")
	conf, cfgs := makeCredentials(t, t.TempDir(), t.TempDir(), t.TempDir())
	addresses, err := servertest.FreeAddresses(6)
	require.NoError(t, err)
	// Here the servers are one another's neighbours, and not hosts of their own.
	for i := range 3 {
		conf = strings.ReplaceAll(conf, fmt.Sprintf("n%d:6222", i+1), addresses[i].String())
		for j := range cfgs {
			cfgs[j] = strings.ReplaceAll(cfgs[j], fmt.Sprintf("n%d:4222", i+1), addresses[3+i].String())
		}
	}
	for i := range 3 {
		file := filepath.Join(t.TempDir(), "nats.conf")
		own := strings.NewReplacer("0.0.0.0:6222", addresses[i].String(), "0.0.0.0:4222", addresses[3+i].String(),
			"http: 127.0.0.1:8222", "", "/data", strconv.Quote(t.TempDir())).Replace(conf)
		require.NoError(t, os.WriteFile(file, []byte(own), 0o600))
		opts, err := server.ProcessConfigFile(file)
		require.NoError(t, err)
		opts.ServerName, opts.NoSigs = fmt.Sprintf("n%d", i+1), true
		srv, err := server.NewServer(opts)
		require.NoError(t, err)
		srv.Start()
		t.Cleanup(func() {
			srv.Shutdown()
			srv.WaitForShutdown()
		})
		require.True(t, srv.ReadyForConnections(time.Minute))
	}
	for _, url := range []string{addresses[3].String(), "broker:wrong@" + addresses[3].String()} {
		_, err := nats.Connect("nats://" + url)
		require.ErrorIs(t, err, nats.ErrAuthorization, url)
	}
	route, err := net.Dial("tcp", addresses[0].String())
	require.NoError(t, err)
	defer func() { _ = route.Close() }()
	info, err := bufio.NewReader(route).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, info, `"auth_required":true`, "a server that joins the cluster needs a password")

	for i, start := range []*cobra.Command{brokercmd.New(), relaycmd.New()} {
		file := filepath.Join(t.TempDir(), "system.cfg")
		require.NoError(t, os.WriteFile(file, []byte(cfgs[i]), 0o600))
		url, stop := listen(t, start, "--config", file)
		// The image has this check, and compose-relay.yaml and compose-feed.yaml use it too.
		require.NoError(t, brokerRun(t, "health", "--url", url))
		require.NoError(t, stop())
	}
}
