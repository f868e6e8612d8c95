package jetpull_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// pinLog records the calls of OnPin and OnUnpin. Pins are numbered.
type pinLog struct {
	mu     sync.Mutex
	ids    []string
	events []string
}

func (l *pinLog) note(what string) func(jetpull.PinEvent) {
	return func(e jetpull.PinEvent) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !slices.Contains(l.ids, e.ID) {
			l.ids = append(l.ids, e.ID)
		}
		l.events = append(l.events, fmt.Sprintf("%s %s %d", what, e.Group, slices.Index(l.ids, e.ID)+1))
	}
}

func (l *pinLog) all() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// options are Group g and the callbacks.
func (l *pinLog) options() []jetpull.SubscribeOption {
	return []jetpull.SubscribeOption{jetpull.Group("g"), jetpull.OnPin(l.note("pinned")), jetpull.OnUnpin(l.note("unpinned"))}
}

// onPinned runs a test on a consumer with groups g and h and a pin that lasts 9 s.
func onPinned(t *testing.T, test func(*testing.T, *world), opts ...jetpull.SubscribeOption) {
	t.Helper()
	cfg := pinnedCfg
	cfg.PriorityGroups = []string{"g", "h"}
	on(t, cfg, test, opts...)
}

func TestPinsOfNextFetchAndAckNext(t *testing.T) {
	var log pinLog
	onPinned(t, func(t *testing.T, w *world) {
		w.Publish(10)
		m, err := w.sub.Next(t.Context())
		require.NoError(t, err)
		one, ok := w.sub.Pin()
		require.True(t, ok)
		require.Equal(t, []string{w.C().Pin(), w.C().Pin()}, []string{one, w.sub.Stats().Pin})
		_, err = w.sub.Fetch(t.Context(), 2)
		require.NoError(t, err)
		m, err = m.AckNext(t.Context())
		require.NoError(t, err)
		for i, p := range w.Pulls() {
			require.Equal(t, "g", p.Req.Group)
			require.Equal(t, i > 0, p.Req.ID == one, "every pull after the first sends the id")
		}
		// The pin is taken from it: the 423 is never shown, and the next pull gets another.
		w.C().Unpin("g")
		got := w.next(t.Context(), jetpull.Group("h"))
		require.NoError(t, (<-got).err, "the pin of another group is not sent")
		before := len(w.Pulls())
		w.C().Unpin("h")
		got = w.next(t.Context(), jetpull.Group("h"))
		require.NoError(t, (<-got).err)
		pulls := w.Pulls()[before:]
		require.Len(t, pulls, 2, "and at once without it")
		require.Empty(t, pulls[1].Req.ID)
		require.Equal(t, []string{"pinned g 1", "pinned h 2", "unpinned h 2", "pinned h 3"}, log.all())
		require.EqualValues(t, 1, w.sub.Stats().Statuses[423])
		w.C().Unpin("h")
		_, err = m.AckNext(t.Context())
		require.NoError(t, err)
		pulls = w.Pulls()
		require.Equal(t, "g", pulls[len(pulls)-1].Req.Group, "AckNext pulls with the terms of the Subscription")
	}, log.options()...)
}

// A callback that blocks delays no message.
func TestPinCallbacks(t *testing.T) {
	var log pinLog
	blocked := make(chan struct{})
	onPinned(t, func(t *testing.T, w *world) {
		blocked = make(chan struct{})
		w.Publish(100)
		for i := range 50 {
			if i == 40 {
				w.C().Unpin("g")
			}
			_, err := w.sub.Next(t.Context())
			require.NoError(t, err)
		}
		require.Zero(t, w.Elapsed())
		require.Empty(t, log.all())
		close(blocked)
		require.Equal(t, []string{"pinned g 1", "unpinned g 1", "pinned g 2"}, log.all(), "in order, once each")
	}, jetpull.Group("g"), jetpull.OnPin(func(e jetpull.PinEvent) { <-blocked; log.note("pinned")(e) }), jetpull.OnUnpin(log.note("unpinned")))
}

// Messages of each pin wait until its OnPin has returned, in each call that reads ahead.
func TestOnPinReturnsBeforeTheFirstMessage(t *testing.T) {
	for name, read := range map[string]func(*world, jetpull.Handler){
		"Consume":                   func(w *world, h jetpull.Handler) { _ = w.sub.Consume(w.t.Context(), h) },
		"Consume with many workers": func(w *world, h jetpull.Handler) { _ = w.sub.Consume(w.t.Context(), h, jetpull.Concurrency(8)) },
		"Messages": func(w *world, h jetpull.Handler) {
			for m, err := range w.sub.Messages(w.t.Context()) {
				if err == nil {
					_, _ = h(w.t.Context(), m), m.Ack()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			const pinned, message = 0, 1
			var events stage.Journal
			onPinned(t, func(t *testing.T, w *world) {
				w.Publish(3)
				go read(w, func(ctx, *jetpull.Msg) error { events.Note(message); return nil })
				stage.Pass(3 * time.Second)
				w.C().Unpin("g")
				w.Publish(2)
				stage.Pass(20 * time.Second)
				require.Equal(t, []int{pinned, message, message, message, pinned, message, message}, events.All())
			}, jetpull.Group("g"), jetpull.OnPin(func(jetpull.PinEvent) {
				<-time.After(time.Second) // it loads what the handlers need
				events.Note(pinned)
			}))
		})
	}
}

// A Consume that ends while OnPin runs does not wait for it, and hands back unhandled messages.
func TestAnEndWhileOnPinRuns(t *testing.T) {
	onPinned(t, func(t *testing.T, w *world) {
		w.Publish(3)
		r := w.consume(taking(&w.j, 0))
		stage.Pass(time.Second)
		require.Zero(t, w.j.Len())
		at := w.Elapsed()
		require.NoError(t, r.stop())
		require.Equal(t, at, w.Elapsed(), "Consume returned at once")
		require.Zero(t, w.j.Len())
		require.Len(t, w.Acks("-NAK"), 3)
	}, jetpull.Group("g"), jetpull.OnPin(func(jetpull.PinEvent) { <-time.After(5 * time.Second) }))
}

// A client that stops gives up its pin when its messages are settled, so that a
// stand-by takes over at once and not after the priority timeout.
func TestAPinIsGivenUpAtTheEnd(t *testing.T) {
	cfg := pinnedCfg
	cfg.PinnedTTL = 2 * time.Minute
	for name, end := range map[string]func(w *world, r *run){
		"Consume": func(_ *world, r *run) { r.cancel() },
		"Close":   func(w *world, _ *run) { go func() { _ = w.sub.Close(w.t.Context()) }() },
	} {
		t.Run(name, at(cfg, func(t *testing.T, w *world) {
			w.Publish(1)
			first := w.consume(func(ctx, *jetpull.Msg) error { <-time.After(time.Minute); return nil })
			standBy := w.subscribe(natstest.JetStream(t, w.Connect()), jetpull.Group("g"))
			w.consumeOn(standBy, taking(&w.j, 0))
			stage.Pass(30 * time.Second)
			w.Publish(5)
			end(w, first)
			stage.Pass(30*time.Second - time.Millisecond)
			require.Zero(t, w.j.Len(), "the first is still at it")
			stage.Pass(100 * time.Millisecond)
			require.Equal(t, 5, w.j.Len())
			require.Len(t, w.Acks("+ACK", 1), 1)
			_ = first.result()
		}, jetpull.Group("g")))
	}
	// Messages gives up its own pin too, and never that of another client.
	on(t, pinnedCfg, func(t *testing.T, w *world) {
		w.Publish(2)
		for m, err := range w.sub.Messages(t.Context()) {
			require.NoError(t, err)
			require.NotEmpty(t, w.C().Pin())
			require.NoError(t, m.Ack())
			break
		}
		stage.Pass(time.Second)
		require.Empty(t, w.C().Pin())
		r := w.consume(nothing)
		rival := w.subscribe(natstest.JetStream(t, w.Connect()), jetpull.Group("g"))
		w.C().Unpin("g")
		w.C().DropPulls()
		w.Publish(1)
		_, err := rival.Next(t.Context())
		require.NoError(t, err)
		pin := w.C().Pin()
		require.NoError(t, r.stop())
		stage.Pass(time.Second)
		require.Equal(t, pin, w.C().Pin())
		w.C().Unpin("g")
		require.NoError(t, w.take(1)[0].Ack())
		require.NotEmpty(t, w.C().Pin())
		require.NoError(t, w.sub.Close(t.Context()))
		require.Empty(t, w.C().Pin(), "Close gives up that of Next and Fetch")
	}, jetpull.Group("g"))
}

// If calls end together, only one gives up the pin: another unpin would take it from the next client.
func TestAPinIsGivenUpOnce(t *testing.T) {
	trip := model.Delay{Min: time.Millisecond, Max: time.Millisecond} // so that both can ask whose pin it is
	onStage(t, stage.Config{Consumer: pinnedCfg, Model: model.Config{Up: trip, Down: trip}}, func(t *testing.T, w *world) {
		w.Publish(4)
		one, other := w.consume(taking(&w.j, 0)), w.consume(taking(&w.j, 0))
		stage.Pass(time.Second)
		pin := w.C().Pin()
		require.NotEmpty(t, pin)
		stage.Pass(time.Minute)
		require.Equal(t, pin, w.C().Pin(), "pulls keep it")
		one.cancel()
		other.cancel()
		require.NoError(t, one.result())
		require.NoError(t, other.result())
		unpins := 0
		for _, op := range w.Ops("PUB") {
			if strings.HasPrefix(op.Subject, "$JS.API.CONSUMER.UNPIN.") {
				unpins++
			}
		}
		require.Equal(t, 1, unpins)
		require.Empty(t, w.C().Pin())
	}, jetpull.Group("g"))
}

// The pin is given up within the second that the end may take, even on a slow link, and during a reading of the consumer.
func TestAPinIsGivenUpOnASlowLink(t *testing.T) {
	trip := model.Delay{Min: 98 * time.Millisecond, Max: 98 * time.Millisecond}
	onStage(t, stage.Config{Consumer: pinnedCfg, Model: model.Config{Up: trip, Down: trip}}, func(t *testing.T, w *world) {
		for wait := time.Second; wait < 2*time.Second; wait += 100 * time.Millisecond {
			r := w.consume(nothing)
			for begun := w.Elapsed(); w.Elapsed() < begun+wait; stage.Pass(10 * time.Millisecond) {
				w.Publish(1)
			}
			require.NotEmpty(t, w.C().Pin())
			require.NoError(t, r.stop())
			require.Empty(t, w.C().Pin(), "after %v", wait)
		}
	}, jetpull.Group("g"))
}

func TestUnpin(t *testing.T) {
	onPinned(t, func(t *testing.T, w *world) {
		w.take(1)
		require.NotEmpty(t, w.C().Pin())
		require.NoError(t, w.sub.Unpin(t.Context()))
		require.Empty(t, w.C().Pin())
		w.take(1)
		require.NoError(t, jetpull.Unpin(t.Context(), w.JS, "S", "C", "h"), "there is one pin, whatever the group")
		require.Empty(t, w.C().Pin())

		api := &jetstream.APIError{}
		require.ErrorAs(t, jetpull.Unpin(t.Context(), w.JS, "S", "C", "other"), &api)
		require.EqualValues(t, 10160, api.ErrorCode)
		require.ErrorAs(t, jetpull.Unpin(t.Context(), w.JS, "S", "other", "g"), &api)
		w.Take(func(op natstest.Op) bool { return w.Peer.ReplyJSON(op.Reply, json.RawMessage(`"not an object"`)) })
		require.Error(t, w.sub.Unpin(t.Context()))
		w.Take(func(natstest.Op) bool { return true }) // only a leader answers, and there is none
		start := time.Now()
		require.ErrorIs(t, w.sub.Unpin(t.Context()), jetpull.ErrTimeout)
		require.Equal(t, 5*time.Second, time.Since(start))
		w.Take(func(op natstest.Op) bool { return w.Peer.NoResponders(op.Reply) })
		require.ErrorIs(t, w.sub.Unpin(t.Context()), jetpull.ErrNoResponders)
		w.Take(nil)
		for _, tt := range []struct{ stream, consumer, group, names string }{
			{"S", "C", "", "Group"},
			{"S", "C", "far too long a name", "Group"},
			{"S", "C", "a b", "Group"},
			{"", "C", "g", "stream"},
			{"S", "a.b", "g", "consumer"},
		} {
			err := jetpull.Unpin(t.Context(), w.JS, tt.stream, tt.consumer, tt.group)
			require.ErrorIs(t, err, jetpull.ErrInvalidOption)
			require.ErrorContains(t, err, tt.names)
		}
		w.NC.Close()
		require.ErrorIs(t, w.sub.Unpin(t.Context()), jetpull.ErrClosed)
	}, jetpull.Group("g"))
}

const (
	pinnedAdvisory   = "$JS.EVENT.ADVISORY.CONSUMER.PINNED.S."
	unpinnedAdvisory = "$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.S."
)

func TestAdvisories(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 5e8, time.UTC)
	sent := []struct {
		subject, body string
		want          jetpull.PinAdvisory
	}{
		{
			pinnedAdvisory + "C", `{"timestamp":"2026-11-20T10:00:00.5Z","stream":"S","consumer":"C","domain":"hub","group":"g","pinned_id":"abc"}`,
			jetpull.PinAdvisory{Pinned: true, Stream: "S", Consumer: "C", Group: "g", ID: "abc", Domain: "hub", Time: at},
		},
		{
			unpinnedAdvisory + "C", `{"timestamp":"2026-11-20T10:00:00.5Z","stream":"S","consumer":"C","group":"g","reason":"timeout"}`,
			jetpull.PinAdvisory{Stream: "S", Consumer: "C", Group: "g", Reason: "timeout", Time: at},
		},
		{pinnedAdvisory + "other", `{"group":"x"}`, jetpull.PinAdvisory{}},
		{pinnedAdvisory + "C", `no json`, jetpull.PinAdvisory{}},
		{pinnedAdvisory + "C", `{"group":"g","timestamp":"soon"}`, jetpull.PinAdvisory{}},
		{pinnedAdvisory + "C", `{"group":"h"}`, jetpull.PinAdvisory{Pinned: true, Group: "h"}},
	}
	onPinned(t, func(t *testing.T, w *world) {
		before := w.NC.NumSubscriptions()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, func() {
			for _, s := range sent {
				w.Peer.Reply(s.subject, []byte(s.body))
			}
			time.AfterFunc(time.Second, cancel)
		})
		var got []jetpull.PinAdvisory
		errs := 0
		for a, err := range jetpull.Advisories(ctx, w.JS, "S", "C") {
			if err != nil {
				require.ErrorContains(t, err, pinnedAdvisory)
				require.Zero(t, a)
				errs++
				continue
			}
			got = append(got, a)
		}
		require.Equal(t, []jetpull.PinAdvisory{sent[0].want, sent[1].want, sent[5].want}, got)
		require.Equal(t, 2, errs, "the loop goes on after one that cannot be read")
		require.Equal(t, 2*time.Second, w.Elapsed(), "it ends quietly with its context")
		time.AfterFunc(time.Second, func() { w.Peer.Reply(pinnedAdvisory+"C", []byte(`{}`)) })
		for range jetpull.Advisories(t.Context(), w.JS, "S", "C") {
			break
		}
		require.Equal(t, before, w.NC.NumSubscriptions())
		for _, err := range jetpull.Advisories(t.Context(), w.JS, "a.b", "C") {
			require.ErrorIs(t, err, jetpull.ErrInvalidOption)
		}
		time.AfterFunc(time.Second, w.NC.Close)
		for _, err := range jetpull.Advisories(t.Context(), w.JS, "S", "C") {
			require.ErrorIs(t, err, jetpull.ErrClosed)
			require.ErrorIs(t, err, nats.ErrConnectionClosed)
		}
	}, jetpull.Group("g"))
}

// A loop that is slower than the advisories for a long time gets all of them.
func TestAdvisoriesWaitForASlowLoop(t *testing.T) {
	onPinned(t, func(t *testing.T, w *world) {
		const sent = 2000
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(time.Second, func() {
			for range sent {
				w.Peer.Reply(pinnedAdvisory+"C", []byte(`{"group":"g"}`))
			}
		})
		got := 0
		for _, err := range jetpull.Advisories(ctx, w.JS, "S", "C") {
			require.NoError(t, err)
			if got++; got == 1 {
				stage.Pass(time.Second)
			}
		}
		require.Equal(t, sent, got)
	}, jetpull.Group("g"))
}
