package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/inbox"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

var (
	messages = flag.Int("inbox.messages", 3000, "messages of TestEffectsAreExact")
	faults   = flag.Int("inbox.faults", 9, "faults of the same")
)

const (
	workerEnv = "INBOX_WORKER"
	workers   = 3
	ackWait   = time.Second
)

// workerSettings are those of a worker in a process of its own.
type workerSettings struct {
	URL, Driver, DSN string
	Batches          bool
}

func work(s workerSettings) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	db, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	nc, err := nats.Connect(s.URL, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	var sub *jetpull.Subscription
	for sub == nil { // its requests can be cut too
		sub, err = jetpull.Subscribe(ctx, js, "S", "C")
		if err != nil && ctx.Err() != nil {
			return nil
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	opts := []jetpull.ConsumeOption{
		jetpull.Concurrency(4), jetpull.RetryDelays(5*time.Millisecond, 100*time.Millisecond), jetpull.OnError(func(error) {}), jetpull.Logger(quiet),
	}
	keep, logger := inbox.Keep(100*time.Millisecond), inbox.Logger(quiet)
	if s.Batches {
		return sub.ConsumeBatch(ctx, 20, 5*time.Millisecond, inbox.BatchHandler(db, unreliableBatch, keep, logger), opts...)
	}
	return sub.Consume(ctx, inbox.Handler(db, unreliable, keep, logger), opts...)
}

func unreliableBatch(ctx context.Context, tx *sql.Tx, ms []*jetpull.Msg) error {
	for _, m := range ms {
		if err := unreliable(ctx, tx, m); err != nil {
			return err
		}
	}
	return nil
}

// unreliable has its effect, and then returns nil in most cases.
func unreliable(ctx context.Context, tx *sql.Tx, m *jetpull.Msg) error {
	if err := effect(ctx, tx, m); err != nil {
		return err
	}
	switch rand.N(400) {
	case 0, 1:
		return errors.New("planned")
	case 2:
		panic("planned")
	case 3:
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// fleet is workers in processes of their own, behind a proxy to each side.
type fleet struct {
	t        *testing.T
	settings workerSettings
	procs    []*exec.Cmd
}

// start starts a worker. Every second one handles batches.
func (f *fleet) start() *exec.Cmd {
	f.settings.Batches = !f.settings.Batches
	settings, err := json.Marshal(f.settings)
	require.NoError(f.t, err)
	cmd := exec.CommandContext(context.WithoutCancel(f.t.Context()), os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(settings), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	require.NoError(f.t, cmd.Start())
	return cmd
}

func (f *fleet) kill(n int) {
	require.NoError(f.t, f.procs[n].Process.Kill())
	_ = f.procs[n].Wait() // it says that it was killed
}

// TestEffectsAreExact: workers are killed and stopped, and their connections to both sides are cut, while they handle messages. Each
// message has its effect once. With -inbox.messages 100000 it is the long form.
func TestEffectsAreExact(t *testing.T) {
	onEach(t, func(t *testing.T, b backend, dsn string) {
		server := servertest.RunServer(t)
		js := natstest.JetStream(t, server.Connect(t))
		natstest.Stream(t, js, "S", "s.>")
		c := natstest.Consumer(t, js, "S", jetstream.ConsumerConfig{Durable: "C", AckWait: ackWait})
		natstest.Publish(t, js, "s.a", *messages)
		toNATS := natstest.NewProxy(t, server.URL())
		cuts := []func(){toNATS.Cut}
		f := &fleet{t: t, settings: workerSettings{URL: toNATS.URL(), Driver: b.driver, DSN: dsn}}
		if b.driver == "pgx" {
			toDB := natstest.NewProxy(t, dsn)
			f.settings.DSN = behind(t, dsn, toDB.URL())
			cuts = append(cuts, toDB.Cut)
		}
		for range workers {
			f.procs = append(f.procs, f.start())
		}
		t.Cleanup(func() {
			for n := range f.procs {
				f.kill(n)
			}
		})
		handled := func(at int) {
			eventually(t, fmt.Sprintf("%d messages are handled", at), func() error {
				info, err := c.Info(t.Context())
				if err != nil {
					return err
				}
				if left := int(info.NumPending) + info.NumAckPending; *messages-left < at {
					return fmt.Errorf("%d are left, %d of them delivered", left, info.NumAckPending)
				}
				return nil
			})
		}
		for n := range *faults {
			handled(*messages * (n + 1) / (*faults + 1))
			switch victim := n % workers; n % 3 {
			case 0:
				f.kill(victim)
				f.procs[victim] = f.start()
			case 1:
				for _, cut := range cuts {
					cut()
				}
			case 2: // its messages go to others, and it still has them when it goes on
				require.NoError(t, f.procs[victim].Process.Signal(syscall.SIGSTOP))
				<-time.After(ackWait * 3 / 2)
				require.NoError(t, f.procs[victim].Process.Signal(syscall.SIGCONT))
			}
		}
		handled(*messages)
		for _, p := range f.procs {
			require.NoError(t, p.Process.Signal(syscall.SIGTERM))
			require.NoError(t, p.Wait())
		}
		f.procs = nil

		db := open(t, b.driver, dsn)
		require.Equal(t, *messages, number(t, db, "SELECT count(DISTINCT n) FROM effects"), "messages that had their effect")
		require.Equal(t, *messages, effects(t, db), "effects")
		info, err := c.Info(t.Context())
		require.NoError(t, err)
		require.Greater(t, int(info.Delivered.Consumer), *messages, "some were redelivered")
		kept := number(t, db, "SELECT count(*) FROM jetpull_inbox")
		if *messages >= 10_000 { // in the short form, too few of the thousandth deliveries can end well
			require.Less(t, kept, *messages/2, "rows are deleted meanwhile")
		}
		t.Logf("%d messages in %d deliveries; %d rows are left", *messages, info.Delivered.Consumer, kept)
	})
}
