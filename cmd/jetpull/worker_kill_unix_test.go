//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// killable is a process of the command that is started again when it was killed.
type killable struct {
	t     *testing.T
	args  []string
	ready string // a line of its output that begins with this says that it is ready
	cmd   *exec.Cmd
}

func (k *killable) start() {
	k.cmd = asCommand(k.args...)
	k.cmd.Stderr = k.t.Output()
	out, err := k.cmd.StdoutPipe()
	require.NoError(k.t, err)
	require.NoError(k.t, k.cmd.Start())
	if k.ready != "" {
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(k.t, err)
		require.True(k.t, strings.HasPrefix(line, k.ready), line)
	}
}

// kill ends it as kill -9 does. It must not have ended before.
func (k *killable) kill() {
	require.NoError(k.t, k.cmd.Process.Kill())
	_ = k.cmd.Wait()
	require.Equal(k.t, syscall.SIGKILL, k.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), "it has ended by itself")
}

// Whichever is killed, the program, the command or the server, each stored message is handled.
func TestWorkerLosesNothingWhenItIsKilled(t *testing.T) {
	t.Parallel()
	kills := 50
	if testing.Short() {
		kills = 6
	}
	dir := t.TempDir()
	addresses, err := servertest.FreeAddresses(1)
	require.NoError(t, err)
	url := "nats://" + addresses[0].String()
	server := &killable{t: t, ready: "server: listening on " + url, args: []string{"server", "--port", strconv.Itoa(addresses[0].Port), "--dir", filepath.Join(dir, "store")}}
	server.start()
	defer func() { server.kill() }()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	require.NoError(t, err)
	_, err = js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{
		Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second,
	})
	require.NoError(t, err)
	command := &killable{t: t, args: []string{
		"consume", "S", "c", "--nats", url, "--worker", "--concurrency", "2", "-q", "--",
		"env", "-u", asJetpull, asWorker + "=" + dir, os.Args[0],
	}}
	command.start()
	defer func() { command.kill() }()

	var stored atomic.Int64 // messages that the server has confirmed
	ctx, enough := context.WithCancel(t.Context())
	published := make(chan struct{})
	go func() {
		defer close(published)
		for ctx.Err() == nil {
			limited, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := js.Publish(limited, "s.a", fmt.Appendf(nil, "note %08d", stored.Load())); err == nil {
				stored.Add(1)
			}
			cancel()
		}
	}()
	notes := filepath.Join(dir, "notes")
	handled := func() int64 {
		info, err := os.Stat(notes)
		if err != nil {
			return 0
		}
		return info.Size() / 9
	}
	random := rand.New(rand.NewPCG(53, 53))
	for i := range kills {
		goal := handled() + 50 + random.Int64N(500)
		require.Eventually(t, func() bool { return handled() >= goal }, 2*time.Minute, time.Millisecond, "kill %d: the work does not go on", i)
		switch i % 3 {
		case 0:
			pid, err := os.ReadFile(filepath.Join(dir, "pid"))
			require.NoError(t, err)
			n, err := strconv.Atoi(string(pid))
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(n, syscall.SIGKILL))
		case 1:
			command.kill()
			command.start()
		default:
			server.kill()
			server.start()
		}
	}
	enough()
	<-published
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		consumer, err := js.Consumer(t.Context(), "S", "c")
		if assert.NoError(c, err) {
			info := consumer.CachedInfo()
			assert.Zero(c, info.NumPending)
			assert.Zero(c, info.NumAckPending)
		}
	}, 2*time.Minute, 50*time.Millisecond)
	text, err := os.ReadFile(notes)
	require.NoError(t, err)
	times := make([]int, stored.Load()+1) // the last may be stored without a confirmation
	lines := strings.Fields(string(text))
	for _, line := range lines {
		n, err := strconv.Atoi(line)
		require.NoError(t, err)
		times[n]++
	}
	again := 0
	for n, count := range times[:stored.Load()] {
		require.Positive(t, count, "message %d is lost", n)
		again += count - 1
	}
	t.Logf("%d kills, %d messages, handled again: %d", kills, stored.Load(), again)
}
