package work

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/webhook"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/test/servertest"
)

func newTestGate() *gate {
	return &gate{w: &core{log: slog.New(slog.DiscardHandler)}, pin: "pin", changed: make(chan struct{})}
}

// pass waits for a place as acquire does, without a registry and an owner.
func (g *gate) pass(r store.Receiver) permit {
	for {
		_, changed := g.look()
		wait, turn := g.try(r, time.Now())
		if wait == 0 {
			return permit{r, turn}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		}
		timer.Stop()
	}
}

// With many workers and POSTs of any length no window has more than the limit, wherever between its begin and its end the
// receiver sees a POST.
func TestGateHoldsTheLimitWhereverThePOSTIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, posts = 7, 300
		r := store.Receiver{RateLimit: limit, Window: time.Second}
		g := newTestGate()
		var mu sync.Mutex
		var arrivals []time.Time
		var wg sync.WaitGroup
		next := make(chan struct{}, posts)
		for range posts {
			next <- struct{}{}
		}
		close(next)
		for range 20 {
			wg.Go(func() {
				for range next {
					p := g.pass(r)
					length := time.Duration(rand.Int64N(int64(400 * time.Millisecond)))
					seenAfter := time.Duration(rand.Int64N(int64(length) + 1))
					time.Sleep(seenAfter)
					mu.Lock()
					arrivals = append(arrivals, time.Now())
					mu.Unlock()
					time.Sleep(length - seenAfter)
					g.release(p, well)
				}
			})
		}
		wg.Wait()
		slices.SortFunc(arrivals, time.Time.Compare)
		require.Len(t, arrivals, posts)
		for i := limit; i < posts; i++ {
			require.GreaterOrEqual(t, arrivals[i].Sub(arrivals[i-limit]), r.Window)
		}
		took := arrivals[posts-1].Sub(arrivals[0])
		require.Less(t, took, time.Duration(posts/limit)*(r.Window+400*time.Millisecond), "the limit is used")
	})
}

// An open breaker probes after 1 s, and then after twice as long each time, up to the receiver's pause between retries, but at
// least 1 s and at most 10 s.
func TestBreakerProbesNoLaterThanRetries(t *testing.T) {
	for retryAfter, most := range map[time.Duration]time.Duration{
		0: time.Second, 300 * time.Millisecond: time.Second, 5 * time.Second: 5 * time.Second, 10 * time.Second: 10 * time.Second, time.Hour: 10 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newTestGate()
			r := store.Receiver{RetryAfter: retryAfter}
			for range breakerFailures {
				g.release(g.pass(r), unwell)
			}
			require.Equal(t, "open", g.state(r).Breaker)
			want := time.Second
			for range 6 {
				begin := time.Now()
				p := g.pass(r)
				require.Equal(t, want, time.Since(begin), retryAfter)
				require.Equal(t, "half_open", g.state(r).Breaker)
				wait, _ := g.try(r, time.Now())
				require.Positive(t, wait, "one probe at a time")
				g.release(p, unwell)
				want = min(2*want, most)
			}
			g.release(g.pass(r), well)
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
			g.release(p, unwell)
		}
		probe := g.pass(r)
		begin := time.Now()
		for _, p := range early[breakerFailures:] {
			g.release(p, unwell)
			wait, _ := g.try(r, time.Now())
			require.Positive(t, wait, "another probe")
		}
		g.release(probe, unwell)
		g.release(g.pass(r), well)
		require.Equal(t, 2*breakerFirst, time.Since(begin))
		require.Equal(t, "closed", g.state(r).Breaker)
	})
}

// The new owner starts with the window that its predecessor saved. If there is none, it assumes that the window is full.
func TestTakeOverOfAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := store.Receiver{RateLimit: 2, Window: 10 * time.Second}
		now := time.Now()
		begin := func(found store.Window) time.Duration {
			g := newTestGate()
			g.w = &core{cfg: Config{Rules: Rules{Takeover: 4 * time.Second}}, node: "me", log: slog.New(slog.DiscardHandler)}
			taken := g.claim("pin", r, found)
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
			Revision: 1, Left: true, Posts: []store.Posts{{Age: 3 * time.Second, Count: 1}, {Age: time.Second, Count: 1}},
		}))
	})
}

// A process that stops hands over the POSTs of its window, however many, and the next process sends none too early.
func TestLargeWindowIsHandedOver(t *testing.T) {
	const posts = 100_000
	r := store.Receiver{Name: "ci", RateLimit: posts, Window: 24 * time.Hour}
	nc := servertest.RunServer(t).Connect(t)
	s, err := store.Open(t.Context(), nc, store.Config{Name: "relay", Replicas: 1, Tombstone: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer s.Close()
	open := func(node string) *gate {
		w := &core{ctx: t.Context(), cfg: Config{Rules: Rules{Takeover: time.Minute}}, store: s, log: slog.New(slog.DiscardHandler), node: node}
		g := newGate(w, r.Name)
		g.pin = node
		require.NoError(t, g.own(t.Context(), r))
		return g
	}
	first := open("first")
	for i := range posts {
		first.sent = append(first.sent, time.Now().Add(-20*time.Hour).Add(time.Duration(i)*500*time.Millisecond))
	}
	sent := first.sent
	first.stop()
	next := open("next")
	wait, _ := next.blockedLocked(store.Receiver{RateLimit: posts + 1, Window: r.Window}, time.Now())
	require.Zero(t, wait)
	require.Len(t, next.sent, posts)
	for i := range posts {
		late := next.sent[i].Sub(sent[i])
		require.True(t, late >= 0 && late < 200*time.Second, "POST %d counts %s later than it was", i, late)
	}

	// A stored window that cannot be decoded counts as full.
	_, err = nc.Request("$KV.relay_state.window.ci", []byte("{"), time.Minute)
	require.NoError(t, err)
	wait, reason := open("last").blockedLocked(r, time.Now())
	require.Positive(t, wait)
	require.Equal(t, ForRate, reason)
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

// A message over NATS has the source of its subject, whatever its headers say. It has no headers that a sender could not set over
// HTTP.
func TestOfferIsOfItsSubject(t *testing.T) {
	for offer, wrong := range map[string]string{
		`{"source":"a/b"}`:                             "",
		`{"source":"a/b","headers":{"X":"1"}}`:         "",
		`{"source":"alice"}`:                           "the subject of another",
		`{"source":"a/b","headers":{"X y":"1"}}`:       "HTTP can carry",
		`{"source":"a/b","headers":{"Webhook-Id":""}}`: "the relay's",
	} {
		header := nats.Header{headerOffer: {offer[:len(offer)-1] + `,"id":"1","receiver":"ci"}`}}
		_, err := parseOffer("relay.from_sender.3.a=2Fb", header, nil)
		if wrong == "" {
			require.NoError(t, err, offer)
		} else {
			require.ErrorContains(t, err, wrong, offer)
		}
	}
}

func FuzzParseOffer(f *testing.F) {
	f.Add("relay.from_sender.3.a%2Fb", "", "id", "ci")
	f.Add("relay.from_sender.3.x", `{"source":"x","id":"1","receiver":"ci"}`, "", "")
	f.Fuzz(func(t *testing.T, subject, head, id, receiver string) {
		o, err := parseOffer(subject, map[string][]string{headerOffer: {head}, HeaderMessageID: {id}, HeaderReceiver: {receiver}}, nil)
		if err == nil {
			require.NoError(t, CheckID("source", o.Source))
			require.NoError(t, CheckID("id", o.ID))
		}
	})
}
