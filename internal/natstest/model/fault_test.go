package model

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// worker is a minimal client. It pulls, acks each message, and pulls again when the pull has ended or no message arrives for too long.
type worker struct {
	nc    *nats.Conn
	inbox chan *nats.Msg
	batch int
	seen  map[string]int // by stream sequence
}

func explicit(change ...func(*jetstream.ConsumerConfig)) jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy}
	for _, f := range change {
		f(&cfg)
	}
	return cfg
}

func newWorker(t *testing.T, m *Model, batch int) *worker {
	t.Helper()
	w := &worker{
		nc:    m.Connect(t, nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(0, 0)),
		inbox: make(chan *nats.Msg, 1000),
		batch: batch,
		seen:  map[string]int{},
	}
	_, err := w.nc.ChanSubscribe("inbox", w.inbox)
	require.NoError(t, err)
	return w
}

// round is one pull. While the connection is down, it does nothing.
func (w *worker) round() {
	body := fmt.Sprintf(`{"batch":%d,"expires":2000000000}`, w.batch)
	if err := w.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.C", "inbox", []byte(body)); err != nil {
		time.Sleep(100 * time.Millisecond)
		return
	}
	timeout := time.After(3 * time.Second)
	for left := w.batch; left > 0; {
		select {
		case m := <-w.inbox:
			if m.Header.Get("Status") != "" {
				time.Sleep(50 * time.Millisecond)
				return
			}
			left--
			w.seen[strings.Split(m.Reply, ".")[5]]++
			// During a reconnect, nats.go buffers the ack.
			_ = w.nc.Publish(m.Reply, nil)
		case <-timeout:
			return
		}
	}
}

// faulty returns configurations under which no message may be lost.
func faulty() map[string]Config {
	slow := Config{Up: Delay{0, 20 * time.Millisecond}, Down: Delay{0, 20 * time.Millisecond}, Wake: Delay{0, 2 * time.Millisecond}}
	lossy := slow
	lossy.Lose = 0.1
	replicas := lossy
	replicas.Replicas, replicas.Quorum, replicas.Outage = 3, Delay{time.Millisecond, 30 * time.Millisecond}, Delay{0, 4 * time.Second}
	remote := replicas
	remote.Replicas, remote.Remote = 1, true
	return map[string]Config{"slow": slow, "lossy": lossy, "replicas": replicas, "remote": remote}
}

// TestNothingIsLostUnderFaults handles a stream with a minimal client under faults, and checks the rules of the model in its history.
func TestNothingIsLostUnderFaults(t *testing.T) {
	for name, cfg := range faulty() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(15) {
				cfg.Seed = seed
				synctest.Test(t, func(t *testing.T) { workOff(t, cfg) })
			}
		})
	}
}

func workOff(t *testing.T, cfg Config) {
	m := New(t, cfg)
	m.AddStream("S", "S.>")
	c := m.AddConsumer("S", explicit(func(c *jetstream.ConsumerConfig) { c.AckWait = 5 * time.Second }))
	defer func() {
		if t.Failed() {
			t.Logf("%+v\n%s", cfg, m.Dump())
		}
	}()
	w := newWorker(t, m, 10)
	rng := rand.New(rand.NewPCG(cfg.Seed, 1))
	stored := 0
	for range 40 {
		for range rng.IntN(10) {
			if m.Publish("S.a", nil, []byte("x")) > 0 {
				stored++
			}
		}
		breakSomething(m, c, rng)
		w.round()
	}
	m.Start()
	for deadline := time.Now().Add(10 * time.Minute); len(c.Unsettled()) > 0; w.round() {
		require.True(t, time.Now().Before(deadline), "seed %d: still unsettled: %v", cfg.Seed, c.Unsettled())
	}
	require.Equal(t, stored, m.Messages("S"))
	require.Len(t, w.seen, stored, "each message has come to the worker")
	checkHistory(t, m)
}

func breakSomething(m *Model, c *Consumer, rng *rand.Rand) {
	switch rng.IntN(12) {
	case 0:
		m.Peer().Cut()
	case 1:
		c.StepDown()
	case 2:
		m.Shutdown()
	case 3:
		m.Crash()
	case 4:
		m.Peer().Pause(true)
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		m.Peer().Pause(false)
	default:
		m.Start()
	}
}

// checkHistory checks that under one leader, acked messages stay acked, and no two deliveries have the same sequence.
func checkHistory(t *testing.T, m *Model) {
	t.Helper()
	settled, delivered := map[uint64]bool{}, map[uint64]bool{}
	for _, e := range m.History() {
		switch e.Kind {
		case LeaderNew:
			clear(settled)
			clear(delivered)
		case Acked:
			settled[e.Seq] = true
		case Delivered, Lost, Unwanted:
			if e.Seq == 0 {
				continue
			}
			require.False(t, delivered[e.DeliverSeq], "two deliveries have the sequence %d: %s", e.DeliverSeq, e)
			delivered[e.DeliverSeq] = true
		case Overdue:
			require.False(t, settled[e.Seq], "redelivered after its ack: %s", e)
		default:
		}
	}
}

func TestEqualSeedsMakeEqualHistories(t *testing.T) {
	run := func() (dump string) {
		synctest.Test(t, func(t *testing.T) {
			cfg := faulty()["replicas"]
			cfg.Seed = 42
			m := New(t, cfg)
			m.AddStream("S", "S.>")
			c := m.AddConsumer("S", explicit())
			w := newWorker(t, m, 5)
			for i := range 30 {
				m.Publish("S.a", nil, nil)
				w.round()
				if i%10 == 9 {
					c.StepDown()
				}
			}
			dump = m.Dump()
		})
		return dump
	}
	require.Equal(t, run(), run())
}

func TestACrashForgetsWhatWasNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(t, Config{})
		m.AddStream("S", "S.>")
		c := m.AddConsumer("S", explicit())
		w := newWorker(t, m, 1)
		deliver := func() {
			m.Publish("S.a", nil, nil)
			w.round()
			synctest.Wait()
		}
		deliver()
		time.Sleep(time.Second) // written
		deliver()               // written at once, because the last write was long ago
		deliver()               // waits for the next write
		require.Empty(t, c.Unsettled())

		m.Crash()
		require.True(t, m.Down())
		require.Zero(t, m.Publish("S.a", nil, nil), "a server that is down stores nothing")
		m.Start()
		require.Equal(t, []uint64{2, 3}, c.Unsettled(), "the ack of the second and all of the third are forgotten")
		for len(c.Unsettled()) > 0 {
			w.round()
		}
		require.Equal(t, map[string]int{"1": 1, "2": 2, "3": 2}, w.seen)
	})
}

func TestPinsAreAdvised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(t, Config{})
		m.AddStream("S", "S.>")
		c := m.AddConsumer("S", explicit(func(c *jetstream.ConsumerConfig) {
			c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"g"}, time.Minute
		}))
		nc := m.Connect(t)
		events := make(chan *nats.Msg, 10)
		_, err := nc.ChanSubscribe("$JS.EVENT.ADVISORY.CONSUMER.*.S.C", events)
		require.NoError(t, err)
		_, err = nc.ChanSubscribe("inbox", make(chan *nats.Msg, 10))
		require.NoError(t, err)
		require.NoError(t, nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.C", "inbox", []byte(`{"group":"g","batch":1}`)))
		synctest.Wait()
		m.Publish("S.a", nil, nil)
		pin := c.Pin()
		require.NotEmpty(t, pin)
		pinned := <-events
		require.Contains(t, pinned.Subject, ".PINNED.")
		require.Contains(t, string(pinned.Data), pin)
		unpinned := <-events // when the pin times out
		require.Contains(t, unpinned.Subject, ".UNPINNED.")
		require.Contains(t, string(unpinned.Data), `"reason":"timeout"`)
		require.Empty(t, c.Pin())

		answer, err := nc.RequestWithContext(t.Context(), "$JS.API.CONSUMER.UNPIN.S.C", []byte(`{"group":"other"}`))
		require.NoError(t, err)
		require.Contains(t, string(answer.Data), "10160")
		_, err = nc.RequestWithContext(t.Context(), "$JS.API.CONSUMER.UNPIN.S.C", []byte(`{"group":"g"}`))
		require.NoError(t, err)
		require.Contains(t, string((<-events).Data), `"reason":"admin"`)
	})
}
