package test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// deniable runs a server whose user may not publish to a subject, and returns what
// denies another one from then on. The connection goes through a proxy.
func deniable(t *testing.T, subject string) (js jetstream.JetStream, proxy *natstest.Proxy, deny func(subject string)) {
	t.Helper()
	const users = `
accounts {
  A {
    jetstream: enabled
    users: [
      {user: all, password: pw}
      {user: some, password: pw, permissions: {publish: {deny: ["DENIED"]}, subscribe: {deny: ["denied.>", "$JS.EVENT.>"]}}}
    ]
  }
}`
	server := servertest.RunServer(t, servertest.WithConfig(strings.ReplaceAll(users, "DENIED", subject)))
	all := natstest.JetStream(t, server.Connect(t, nats.UserInfo("all", "pw")))
	natstest.Stream(t, all, "S", "s.>")
	natstest.Consumer(t, all, "S", jetstream.ConsumerConfig{Durable: "C"})
	natstest.Publish(t, all, "s.a", 3)
	proxy = natstest.NewProxy(t, server.URL())
	nc := connect(t, proxy.URL(), nats.UserInfo("some", "pw"))
	return natstest.JetStream(t, nc), proxy, func(subject string) {
		server.Reload(strings.ReplaceAll(users, "DENIED", subject))
	}
}

const unused = "other.subject"

// TestAMissingPermissionIsNamed, and leaves nothing behind. The server does not answer a request that it does not permit, so
// Subscribe and Info return that when their wait is over.
func TestAMissingPermissionIsNamed(t *testing.T) {
	t.Parallel()
	js, proxy, deny := deniable(t, "$JS.API.CONSUMER.INFO.S.C")
	for name, nc := range map[string]*nats.Conn{
		"$JS.API.CONSUMER.INFO.S.C": js.Conn(),
		"denied.":                   connect(t, proxy.URL(), nats.UserInfo("some", "pw"), nats.CustomInboxPrefix("denied")),
	} {
		for range 2 { // nats.go goes on saying what the server refused last
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // a busy server refuses late
			_, err := jetpull.Subscribe(ctx, natstest.JetStream(t, nc), "S", "C")
			cancel()
			require.ErrorIs(t, err, nats.ErrPermissionViolation)
			require.ErrorContains(t, err, name)
		}
		eventually(t, func() error {
			if n := libSubscriptions(nc); n > 0 {
				return jetpull.ErrTimeout
			}
			return nil
		}, "no subscription is left")
	}
	deny(unused)
	proxy.Delay(100 * time.Millisecond)
	_, err := subscribe(t, js, "S", "C").Info(t.Context())
	require.NoError(t, err, "a permission that is given is used at once")
	require.ErrorIs(t, js.Conn().LastError(), nats.ErrPermissionViolation, "it is still what nats.go heard last")

	for _, err := range jetpull.Advisories(t.Context(), js, "S", "C") {
		require.ErrorIs(t, err, nats.ErrPermissionViolation)
		require.ErrorContains(t, err, "$JS.EVENT.ADVISORY.CONSUMER.*.S.C")
	}

	js, _, _ = deniable(t, nextSubject)
	sub := subscribe(t, js, "S", "C")
	for _, n := range []int{0, 5} {
		err := receive(t, call(t.Context(), sub, n, jetpull.MaxWait(forever)), "refusal").err
		require.ErrorIs(t, err, nats.ErrPermissionViolation)
		require.ErrorContains(t, err, nextSubject)
	}
}

// TestAPullAfterAPermissionWasTakenAndGiven: neither the Subscription whose pull was
// refused nor another one on the same consumer, idle at the time, takes a later silence
// for that.
func TestAPullAfterAPermissionWasTakenAndGiven(t *testing.T) {
	t.Parallel()
	js, proxy, deny := deniable(t, unused)
	refused, idle := subscribe(t, js, "S", "C"), subscribe(t, js, "S", "C")
	both := []*jetpull.Subscription{refused, idle}
	pull := func() {
		for _, s := range both {
			require.NoError(t, next(t, s).Nak())
		}
	}
	pull()
	deny(nextSubject)
	_, err := refused.Next(t.Context(), jetpull.MaxWait(forever))
	require.ErrorIs(t, err, nats.ErrPermissionViolation)
	first := js.Conn().LastError()
	_, err = refused.Next(t.Context(), jetpull.NoWait())
	require.ErrorIs(t, err, nats.ErrPermissionViolation)
	require.NotSame(t, first, js.Conn().LastError(), "each refusal is another")
	deny(unused)
	pull()
	proxy.BlackHole(true)
	for _, s := range both {
		_, err := s.Next(t.Context(), jetpull.MaxWait(time.Second))
		require.ErrorIs(t, err, jetpull.ErrTimeout)
		require.NotErrorIs(t, err, nats.ErrPermissionViolation)
	}
	proxy.BlackHole(false)
	pull()
}

// TestAnUnpinThatFailsCostsNothing: a client that may not send it stops as well as another.
func TestAnUnpinThatFailsCostsNothing(t *testing.T) {
	t.Parallel()
	js, _, _ := deniable(t, "$JS.API.CONSUMER.UNPIN.S.P")
	cfg := pinnedConsumer()
	cfg.Durable, cfg.PinnedTTL, cfg.AckWait = "P", time.Second, forever // so that the second one gets the pin
	natstest.Consumer(t, js, "S", cfg)
	for range 2 {
		natstest.Publish(t, js, "s.a", 1) // the one before may have handled all that there were
		sub := subscribe(t, js, "S", "P", jetpull.Group("A"))
		ctx, stop := context.WithCancel(t.Context())
		require.NoError(t, sub.Consume(ctx, func(context.Context, *jetpull.Msg) error { stop(); return nil }))
		require.NoError(t, sub.Close(t.Context()))
	}
}

// TestRefusedAcknowledgementsAreReported: the server does not answer them, and redelivers what was handled.
func TestRefusedAcknowledgementsAreReported(t *testing.T) {
	t.Parallel()
	js, _, _ := deniable(t, "$JS.ACK.S.>")
	sub := subscribe(t, js, "S", "C", jetpull.MaxWait(time.Second))
	m, err := sub.Next(t.Context())
	require.NoError(t, err)
	for name, confirm := range map[string]func(context.Context) error{
		"DoubleAck":   m.DoubleAck,
		"ConfirmAcks": func(ctx context.Context) error { return jetpull.ConfirmAcks(ctx, m) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := confirm(ctx)
		cancel()
		require.ErrorIs(t, err, nats.ErrPermissionViolation)
		require.ErrorContains(t, err, "$JS.ACK.S.C.", name)
	}
	for name, opts := range map[string][]jetpull.ConsumeOption{"one": nil, "several": {jetpull.Concurrency(4)}, "keys": {byKey}} {
		t.Run(name, func(t *testing.T) {
			natstest.Consumer(t, js, "S", jetstream.ConsumerConfig{Durable: name, AckWait: 2 * time.Second})
			var handled atomic.Int32
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := subscribe(t, js, "S", name).Consume(ctx, func(context.Context, *jetpull.Msg) error { handled.Add(1); return nil }, opts...)
			require.ErrorIs(t, err, nats.ErrPermissionViolation)
			require.ErrorContains(t, err, "$JS.ACK.S."+name+".>")
			require.EqualValues(t, 3, handled.Load(), "none is handled again")
		})
	}
	natstest.Consumer(t, js, "S", jetstream.ConsumerConfig{Durable: "batch", AckWait: 2 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = subscribe(t, js, "S", "batch").ConsumeBatch(ctx, 3, time.Second, func(context.Context, []*jetpull.Msg) error { return nil })
	require.ErrorIs(t, err, nats.ErrPermissionViolation)
	require.ErrorContains(t, err, "$JS.ACK.S.batch.")
}

// TestAPermissionForDeadLettersIsNamed: for the look-up of their stream, and for their subject.
func TestAPermissionForDeadLettersIsNamed(t *testing.T) {
	t.Parallel()
	for subject, within := range map[string]time.Duration{"$JS.API.STREAM.NAMES": 12 * time.Second, "dead.letters": patience} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			js, _, _ := deniable(t, subject)
			natstest.Stream(t, js, "D", "dead.>")
			sub := subscribe(t, js, "S", "C")
			ctx, stop := context.WithTimeout(t.Context(), within)
			defer stop()
			problems := make(chan error, 100) // of the permission: a busy server may also leave a pull without an answer
			err := sub.Consume(ctx, func(context.Context, *jetpull.Msg) error { return errNoUse }, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.letters"),
				jetpull.OnError(func(err error) {
					if errors.Is(err, nats.ErrPermissionViolation) {
						problems <- err
						stop()
					}
				}), jetpull.OnEvent(func(jetpull.Event) {}))
			if within == patience {
				require.NoError(t, err)
				err = receive(t, problems, "a refusal")
			} else {
				require.NoError(t, ctx.Err(), "it took 5 s")
			}
			require.ErrorIs(t, err, nats.ErrPermissionViolation)
			require.ErrorContains(t, err, subject)
		})
	}
}
