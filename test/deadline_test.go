package test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/model"
)

// The tests here are of what a call waits for and how long, in virtual time.

// obstacles keep messages from the calls of a client.
var obstacles = map[string]struct {
	servers model.Config
	cfg     jetstream.ConsumerConfig
	opts    []jetpull.Option
	meet    func(*world)
	end     func(*world)
	shows   error // in the error of a call, if any
}{
	"no message": {
		meet: func(*world) {},
		end:  func(w *world) { w.publish("s.a", 1) },
	},
	"no connection": {
		meet: func(w *world) { w.model.Peer().Refuse(true); w.model.Peer().Cut() },
		end:  func(w *world) { w.model.Peer().Refuse(false); w.publish("s.a", 1) },
	},
	"a silent connection": {
		// A pull of before is served when it comes through, and nobody is there.
		cfg:  jetstream.ConsumerConfig{AckWait: 5 * time.Second},
		meet: func(w *world) { w.model.Peer().Pause(true) },
		end:  func(w *world) { w.model.Peer().Pause(false); w.publish("s.a", 1) },
	},
	"a server that is down": {
		meet: func(w *world) { w.model.Shutdown(); pass(time.Second) },
		end:  func(w *world) { w.model.Start(); w.publish("s.a", 1) },
	},
	"no leader": {
		servers: model.Config{Remote: true},
		meet:    func(w *world) { w.model.Shutdown(); pass(time.Second) },
		end:     func(w *world) { w.model.Start(); w.publish("s.a", 1) },
		shows:   jetpull.ErrNoResponders,
	},
	"MaxAckPending": {
		cfg: jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: forever},
		meet: func(w *world) {
			w.publish("s.a", 2)
			held, err := w.sub.Next(w.t.Context())
			require.NoError(w.t, err)
			w.held = held
		},
		end: func(w *world) { ackAll(w.t, w.held) },
	},
	"a pause": {
		meet: func(w *world) { w.consumer.Pause(time.Now().Add(forever)); w.publish("s.a", 1) },
		end:  func(w *world) { w.consumer.Pause(time.Time{}) },
	},
	"another's pin": {
		cfg: pinnedConsumer(), opts: []jetpull.Option{jetpull.Group("A")},
		meet: func(w *world) {
			w.publish("s.a", 1)
			_, other := w.client(jetpull.Group("A"))
			ackAll(w.t, next(w.t, other))
			w.publish("s.a", 1)
		},
		end: func(w *world) { w.consumer.Unpin("A") },
	},
}

// margin is how much earlier than a call's deadline the server is asked to end its
// pull.
const margin = 100 * time.Millisecond

func TestACallEndsByItsDeadline(t *testing.T) {
	within := func(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
	}
	for name, o := range obstacles {
		for _, tc := range []struct {
			name string
			n    int
			ctx  func(context.Context) (context.Context, context.CancelFunc)
			opts []jetpull.Option
			want time.Duration
		}{
			{"Next", 0, nil, []jetpull.Option{jetpull.MaxWait(300 * time.Millisecond)}, 300 * time.Millisecond},
			{"Next by default", 0, nil, nil, 5 * time.Second},
			{"Next by its context", 0, within(2 * time.Second), nil, 2 * time.Second},
			{"Fetch", 5, nil, []jetpull.Option{jetpull.MaxWait(3 * time.Second)}, 3 * time.Second},
			{"Fetch by its context", 5, within(300 * time.Millisecond), []jetpull.Option{jetpull.MaxWait(forever)}, 300 * time.Millisecond},
			{"Fetch with FillBatch", 5, nil, []jetpull.Option{jetpull.FillBatch(), jetpull.MaxWait(20 * time.Second)}, 20 * time.Second},
			{"Fetch with a heartbeat", 5, nil, []jetpull.Option{jetpull.Heartbeat(time.Second), jetpull.MaxWait(20 * time.Second)}, 20 * time.Second},
		} {
			t.Run(tc.name+" over "+name, func(t *testing.T) {
				virtuallyOn(t, o.servers, o.cfg, func(t *testing.T, w *world) {
					o.meet(w)
					ctx := t.Context()
					if tc.ctx != nil {
						var cancel context.CancelFunc
						ctx, cancel = tc.ctx(ctx)
						defer cancel()
					}
					res := receive(t, call(ctx, w.sub, tc.n, tc.opts...), "the time-out")
					requireIs(t, res.err, jetpull.ErrTimeout, nats.ErrTimeout)
					require.NotErrorIs(t, res.err, jetpull.ErrConsumerDeleted)
					if o.shows != nil {
						requireIs(t, res.err, o.shows)
					}
					if tc.ctx != nil && res.took == tc.want {
						requireIs(t, res.err, context.DeadlineExceeded)
					}
					if tc.ctx == nil {
						require.NotErrorIs(t, res.err, context.DeadlineExceeded, "MaxWait ended it, not the context")
					}
					require.GreaterOrEqual(t, res.took, tc.want-margin-slack)
					require.LessOrEqual(t, res.took, tc.want+slack)
					got := call(t.Context(), w.sub, tc.n, jetpull.MaxWait(forever), jetpull.Heartbeat(time.Second))
					pass(time.Second)
					o.end(w)
					ackAll(t, served(t, got, "a message after that")...)
				}, o.opts...)
			})
		}
	}
}

// TestACallOutlivesAFault, whether it waits for a first message or has part of a batch.
func TestACallOutlivesAFault(t *testing.T) {
	for _, name := range []string{"no connection", "a server that is down", "no leader"} {
		t.Run(name, func(t *testing.T) {
			o := obstacles[name]
			virtuallyOn(t, o.servers, o.cfg, func(t *testing.T, w *world) {
				fill := call(t.Context(), w.sub, 5, jetpull.FillBatch(), jetpull.MaxWait(forever))
				pass(time.Second)
				w.publish("s.a", 2)
				pass(time.Second)
				one := call(t.Context(), w.sub, 0, jetpull.MaxWait(forever), jetpull.Heartbeat(time.Second))
				pass(time.Second)
				o.meet(w)
				pass(20 * time.Second)
				require.Empty(t, fill)
				require.Empty(t, one)
				o.end(w)
				w.publish("s.b", 3)
				var h history
				h.note(t, append(served(t, fill, "the whole batch"), served(t, one, "a message")...)...)
				require.Equal(t, 6, h.seen.len())
				w.settled()
			})
		})
	}
}

// TestNoWaitDoesNotWait for what nobody can say when it comes.
func TestNoWaitDoesNotWait(t *testing.T) {
	for name, is := range map[string]error{
		"no message": jetpull.ErrNoMessages, "a pause": jetpull.ErrNoMessages, "another's pin": jetpull.ErrNoMessages,
		"MaxAckPending": jetpull.ErrTimeout, // the server does not answer then
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, obstacles[name].cfg, func(t *testing.T, w *world) {
				obstacles[name].meet(w)
				for _, n := range []int{0, 5} {
					res := receive(t, call(t.Context(), w.sub, n, jetpull.NoWait(), jetpull.MaxWait(forever)), "the answer")
					requireIs(t, res.err, is)
					require.LessOrEqual(t, res.took, 2*time.Second)
					if name == "MaxAckPending" {
						require.NotErrorIs(t, res.err, jetpull.ErrNoMessages)
						require.ErrorContains(t, res.err, "MaxAckPending")
					}
				}
			}, obstacles[name].opts...)
		})
	}
}

func TestHeartbeatsKeepAPullAlive(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		got := call(t.Context(), w.sub, 0, jetpull.MaxWait(forever), jetpull.Heartbeat(500*time.Millisecond))
		pass(time.Minute)
		s := w.sub.Stats()
		require.EqualValues(t, 2, s.Pulls, "none was missed, so no pull was sent again: %+v", s)
		require.GreaterOrEqual(t, s.Statuses[100], uint64(118))
		require.Zero(t, s.Silent)
		w.publish("s.a", 1)
		served(t, got, "the message")
	})
}

func TestFillBatch(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{AckWait: forever}, func(t *testing.T, w *world) {
		all := call(t.Context(), w.sub, 5, jetpull.FillBatch(), jetpull.MaxWait(forever))
		for _, n := range []int{2, 2, 1} {
			pass(time.Minute)
			require.Empty(t, all)
			w.publish("s.a", n)
		}
		require.Len(t, served(t, all, "the whole batch"), 5)

		w.publish("s.a", 1) // at the deadline it returns what there is
		got := call(t.Context(), w.sub, 3, jetpull.FillBatch(), jetpull.MaxWait(10*time.Second))
		pass(4 * time.Second)
		w.publish("s.b", 1)
		res := receive(t, got, "part of a batch")
		require.NoError(t, res.err)
		requireBodies(t, res.msgs, "s.a", "s.b")
		require.GreaterOrEqual(t, res.took, 10*time.Second-margin-slack)
	})
}

// TestCloseEndsWithoutAServer, though it waits for what may be on the wire.
func TestCloseEndsWithoutAServer(t *testing.T) {
	for _, name := range []string{"no connection", "a silent connection"} {
		t.Run(name, func(t *testing.T) {
			virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
				waiting := call(t.Context(), w.sub, 5, jetpull.MaxWait(forever))
				pass(time.Second)
				obstacles[name].meet(w)
				ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
				defer cancel()
				require.NoError(t, w.sub.Close(ctx))
				requireIs(t, receive(t, waiting, "end of the call").err, jetpull.ErrClosed)
				obstacles[name].end(w)
			})
		})
	}
}
