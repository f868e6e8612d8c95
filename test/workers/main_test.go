// Package workers tests what outlasts the processes of workers, with processes that end in the middle of a handler.
package workers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/deadletters"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/partition"
)

const (
	settingsEnv = "JETPULL_TEST_WORKER"
	stream      = "JOBS"
	consumer    = "workers"
	bucket      = "crashes"
	killer      = "kill"
)

// TestMain runs a worker where the process was started as one.
func TestMain(m *testing.M) {
	if text := os.Getenv(settingsEnv); text != "" {
		var s workerSettings
		if err := errors.Join(json.Unmarshal([]byte(text), &s), s.run()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// workerSettings are those of a worker in a process of its own. It writes a line when a handler begins, and one when it is over.
type workerSettings struct {
	URL         string
	Partitions  int // 0: a plain Consume
	Concurrency int
	MaxCrashes  int // 0: no limit
	Work        time.Duration
	Capture     bool // it captures instead
}

// line is what a worker writes.
type line struct {
	Kind string // begin or end
	Seq  uint64
}

func (s *workerSettings) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	nc, err := nats.Connect(s.URL, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if s.Capture {
		return deadletters.Capture(ctx, js, deadletters.Config{Stream: "DEAD", Subject: "dead.jobs", Logger: slog.New(slog.DiscardHandler)})
	}
	opts := []jetpull.HandlerOption{jetpull.Concurrency(s.Concurrency), jetpull.DeadLetter("dead.jobs"), jetpull.MaxAttempts(10)}
	if s.MaxCrashes > 0 {
		marks, err := js.KeyValue(ctx, bucket)
		if err != nil {
			return err
		}
		opts = append(opts, jetpull.MaxCrashes(s.MaxCrashes, marks))
	}
	if s.Partitions > 0 {
		set, err := partition.Open(ctx, js, stream, partition.Config{
			Name: consumer, Partitions: s.Partitions, Subject: "jobs.{partition}.>", AckWait: time.Second, TTL: time.Second,
		})
		if err != nil {
			return err
		}
		return set.Consume(ctx, s.handler(), partition.With(opts...))
	}
	sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.Background()) }()
	all := make([]jetpull.ConsumeOption, len(opts))
	for i, o := range opts {
		all[i] = o
	}
	return sub.Consume(ctx, s.handler(), all...)
}

// handler ends the process at a message that says so.
func (s *workerSettings) handler() jetpull.Handler {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	write := func(kind string, m *jetpull.Msg) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(line{kind, m.Sequence()})
	}
	return func(_ context.Context, m *jetpull.Msg) error {
		write("begin", m)
		time.Sleep(s.Work)
		if string(m.Data()) == killer {
			os.Exit(9)
		}
		write("end", m)
		return nil
	}
}

// life is a process that runs as a worker.
type life struct {
	cmd   *exec.Cmd
	lines chan line
}

// start starts a worker.
func start(t *testing.T, s workerSettings) *life {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	text, err := json.Marshal(s)
	require.NoError(t, err)
	l := &life{cmd: exec.Command(exe), lines: make(chan line)}
	l.cmd.Env, l.cmd.Stderr = append(os.Environ(), settingsEnv+"="+string(text)), os.Stderr
	natstest.EndWithParent(l.cmd, syscall.SIGKILL)
	out, err := l.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, l.cmd.Start())
	go func() {
		defer close(l.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			var text line
			if json.Unmarshal(scanner.Bytes(), &text) == nil {
				l.lines <- text
			}
		}
	}()
	return l
}

// stop ends a worker in an orderly way.
func (l *life) stop() {
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	go func() {
		for range l.lines { // it must not block
		}
	}()
	_ = l.cmd.Wait()
}
