package shards

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

type connected struct{}

func (connected) Down() error     { return nil }
func (connected) Outages() uint64 { return 0 }

// A tick from the future is not this node's. It would make a lease that outlives the pin. A client that may publish ticks sends them here.
func TestForgedTick(t *testing.T) {
	srv := servertest.RunServer(t, servertest.WithAttackers("ticks"))
	js := srv.JetStream(t, srv.Connect(t))
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TICKS", Subjects: []string{"ticks"}})
	require.NoError(t, err)
	s := New(Sharing{
		JS: js, Link: connected{}, Shared: true, Ticks: "TICKS", TickSubject: "ticks", TakeOverSubject: "takeovers",
		UpToNow: func(context.Context) (uint64, error) { return 0, nil }, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var owning sync.WaitGroup
	owning.Go(func() { s.Own(ctx, func(int) {}, func(int) {}) })
	t.Cleanup(func() { cancel(); owning.Wait() })
	attacker := srv.Attacker(t, "ticks")
	for begin := s.now(); s.now() < begin+2*tickPause || !s.Owns(0); {
		for _, sent := range []time.Duration{time.Hour, -time.Hour, 1<<63 - 1 - shardLease, s.now() + tickPause} {
			forged, err := json.Marshal(tick{Node: s.node, Sent: sent})
			require.NoError(t, err)
			_, err = attacker.Request("ticks", forged, time.Minute)
			require.NoError(t, err)
		}
		for n := range shardCount {
			if held := s.held[n].Load(); held != nil {
				require.LessOrEqual(t, held.until, s.now()+shardLease)
			}
		}
	}
}
