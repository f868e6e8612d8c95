package work

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/test/servertest"
)

func newTestGate() *receiverGate {
	return &receiverGate{w: &core{log: slog.New(slog.DiscardHandler)}, pin: "pin", changed: make(chan struct{})}
}

// pass waits for a place as acquire does, without a registry and an owner.
func (g *receiverGate) pass(r store.Receiver) permit {
	for {
		_, changed := g.look()
		p := permit{Receiver: r}
		wait := g.begin(&p)
		if wait.For == "" {
			return p
		}
		select {
		case <-time.After(time.Until(wait.Until)):
		case <-changed:
		}
	}
}

// An open breaker probes after 1 s, and then after twice as long each time, up to the receiver's pause between retries, but at
// least 1 s and at most 10 s.
func TestBreakerProbesNoLaterThanRetries(t *testing.T) {
	for retryAfter, most := range map[time.Duration]time.Duration{
		0: time.Second, 300 * time.Millisecond: time.Second, 5 * time.Second: 5 * time.Second, 10 * time.Second: 10 * time.Second,
		time.Hour: 10 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newTestGate()
			r := store.Receiver{RetryAfter: retryAfter}
			for range breakerFailures {
				g.release(g.pass(r), gate.Failure)
			}
			require.Equal(t, "open", g.state(r).Breaker)
			want := time.Second
			for range 6 {
				begin := time.Now()
				p := g.pass(r)
				require.Equal(t, want, time.Since(begin), retryAfter)
				require.Equal(t, "half_open", g.state(r).Breaker)
				require.Equal(t, gate.Wait{For: gate.Breaker}, g.begin(&permit{Receiver: r}), "one probe at a time")
				g.release(p, gate.Failure)
				want = min(2*want, most)
			}
			g.release(g.pass(r), gate.Success)
			require.Equal(t, "closed", g.state(r).Breaker)
		})
	}
}

// POSTs that were in flight when the breaker opened are not probes: their ends let no other begin, and make no pause longer.
func TestBreakerKnowsItsProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGate()
		r := store.Receiver{RetryAfter: lastPause}
		var early []permit
		for range breakerFailures + 10 {
			early = append(early, g.pass(r))
		}
		for _, p := range early[:breakerFailures] {
			g.release(p, gate.Failure)
		}
		probe := g.pass(r)
		begin := time.Now()
		for _, p := range early[breakerFailures:] {
			g.release(p, gate.Failure)
			require.Equal(t, gate.Breaker, g.begin(&permit{Receiver: r}).For, "another probe")
		}
		g.release(probe, gate.Failure)
		g.release(g.pass(r), gate.Success)
		require.Equal(t, 2*breakerFirst, time.Since(begin))
		require.Equal(t, "closed", g.state(r).Breaker)
	})
}

// The new owner starts with the window that its predecessor saved. If there is none, it assumes that the window is full.
func TestTakeOverOfAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := store.Receiver{ReceiverConfig: store.ReceiverConfig{RateLimit: 2}, Window: 10 * time.Second}
		now := time.Now()
		begin := func(found store.Window) time.Duration {
			g := newTestGate()
			g.w = &core{cfg: Config{Rules: Rules{Takeover: 4 * time.Second}}, Node: "me", log: slog.New(slog.DiscardHandler)}
			taken := claim("pin", r, found, 4*time.Second)
			taken.Revision = 2
			g.takeOver(taken, now)
			g.pass(r)
			took := time.Since(now)
			now = time.Now()
			return took
		}
		require.Zero(t, begin(store.Window{}), "nobody has ever sent")
		require.Equal(t, 12*time.Second, begin(store.Window{Revision: 1}))
		require.Equal(t, 7*time.Second, begin(store.Window{
			Revision: 1, Left: true, Posts: []gate.Posts{{Age: 3 * time.Second, Count: 1}, {Age: time.Second, Count: 1}},
		}))
	})
}

// A process that stops hands over the POSTs of its window, however many, and the next process sends none too early.
func TestLargeWindowIsHandedOver(t *testing.T) {
	const posts = 100_000
	r := store.Receiver{Named: store.Named{Name: "ci"}, ReceiverConfig: store.ReceiverConfig{RateLimit: posts}, Window: 24 * time.Hour}
	nc := servertest.RunServer(t).Connect(t)
	s, err := store.Open(t.Context(), nc, store.Config{Name: "relay", Replicas: 1, Tombstone: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer s.Close()
	open := func(node string) *receiverGate {
		w := &core{ctx: t.Context(), cfg: Config{Rules: Rules{Takeover: time.Minute}}, store: s, log: slog.New(slog.DiscardHandler), Node: node}
		g := newGate(w, r.Name)
		g.pin, g.confirm = node, func(context.Context) (string, error) { return node, nil }
		require.NoError(t, g.ensureOwner(t.Context(), r))
		return g
	}
	first := open("first")
	now := time.Now()
	for i := range posts {
		sent := now.Add(-20 * time.Hour).Add(time.Duration(i) * 500 * time.Millisecond)
		first.gate.End(gateConfig(r), first.gate.Begin(gateConfig(r), sent), gate.Success, sent)
	}
	first.stop()
	next := open("next")
	for i := range posts {
		// So many POSTs have left the window when the next one may begin with a limit of that many less.
		lowered := store.Receiver{ReceiverConfig: store.ReceiverConfig{RateLimit: posts - i}, Window: r.Window}
		counts := next.gate.Next(gateConfig(lowered), now).Until.Add(-r.Window)
		late := counts.Sub(now.Add(-20 * time.Hour).Add(time.Duration(i) * 500 * time.Millisecond))
		require.True(t, late >= 0 && late < 200*time.Second, "POST %d counts %s later than it was", i, late)
	}
	require.Equal(t, posts, next.state(r).WindowUsed)

	// A stored window that cannot be decoded counts as full.
	_, err = nc.Request("$KV.relay_state.window.ci", []byte("{"), time.Minute)
	require.NoError(t, err)
	require.Equal(t, gate.Rate, open("last").state(r).Waiting.For)
}

func TestPauses(t *testing.T) {
	require.LessOrEqual(t, pause(1), time.Second)
	require.Equal(t, 2*pause(1), pause(2))
	require.Equal(t, 10*time.Second, pause(1000))
	asking := func(seconds string) *webhook.Answer {
		return &webhook.Answer{Header: http.Header{"Retry-After": {seconds}}}
	}
	require.Equal(t, pause(2), pauseAsked(pause(2), nil))
	require.Equal(t, pause(2), pauseAsked(pause(2), &webhook.Answer{}))
	require.Equal(t, pause(1), pauseAsked(pause(1), asking("0.0001")))
	require.Equal(t, time.Second, pauseAsked(pause(1000), asking("0.0001")))
	require.Equal(t, 2*time.Second, pauseAsked(pause(1000), asking("2")))
	require.Equal(t, time.Minute, pauseAsked(pause(1), asking("60")))
}

func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{"", "1", "0.5", "-1", "1e400", "NaN", "Wed, 21 Oct 2065 07:28:00 GMT", "soon"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		d := retryAfter(http.Header{"Retry-After": {value}})
		require.True(t, d >= 0 && d <= maxRetryAfter, d)
	})
}

func FuzzParseOffer(f *testing.F) {
	f.Add("relay.from_sender.3.a%2Fb", "id", "ci")
	f.Add("relay.from_sender.3.x", "", "")
	f.Fuzz(func(t *testing.T, subject, id, receiver string) {
		o, err := parseOffer(subject, map[string][]string{HeaderMessageID: {id}, HeaderReceiver: {receiver}}, nil)
		if err == nil {
			require.NoError(t, CheckID("source", o.Source))
			require.NoError(t, CheckID("id", o.ID))
		}
	})
}
