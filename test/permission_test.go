package test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// deniedThenAllowed runs a server whose user may not publish to a subject, and
// returns what allows it. The connection goes through a proxy.
func deniedThenAllowed(t *testing.T, subject string) (js jetstream.JetStream, proxy *natstest.Proxy, allow func()) {
	t.Helper()
	js, proxy, deny := deniable(t, subject)
	return js, proxy, func() { deny("other.subject") }
}

// deniable is deniedThenAllowed with a say in what is denied from now on.
func deniable(t *testing.T, subject string) (js jetstream.JetStream, proxy *natstest.Proxy, deny func(subject string)) {
	t.Helper()
	const users = `
accounts {
  A {
    jetstream: enabled
    users: [
      {user: all, password: pw}
      {user: some, password: pw, permissions: {publish: {deny: ["DENIED"]}}}
    ]
  }
}`
	server := natstest.RunServer(t, natstest.WithConfig(strings.ReplaceAll(users, "DENIED", subject)))
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

// TestSubscribeAfterAPermissionWasGiven: nats.go goes on saying what the server
// refused last.
func TestSubscribeAfterAPermissionWasGiven(t *testing.T) {
	t.Parallel()
	js, proxy, allow := deniedThenAllowed(t, "$JS.API.CONSUMER.INFO.S.C")
	_, err := jetpull.Subscribe(t.Context(), js, "S", "C")
	requireIs(t, err, nats.ErrPermissionViolation)
	_, err = jetpull.Subscribe(t.Context(), js, "S", "C")
	requireIs(t, err, nats.ErrPermissionViolation)
	allow()
	proxy.Delay(100 * time.Millisecond)
	sub := subscribe(t, js, "S", "C")
	_, err = sub.Info(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, js.Conn().LastError(), nats.ErrPermissionViolation, "it is still what nats.go heard last")
}

// TestPullAfterAPermissionWasGiven: a pull that gets no answer for another
// reason does not end the call for what was refused before.
func TestPullAfterAPermissionWasGiven(t *testing.T) {
	t.Parallel()
	js, proxy, allow := deniedThenAllowed(t, nextSubject)
	sub := subscribe(t, js, "S", "C")
	for range 2 {
		for _, wait := range []time.Duration{200 * time.Millisecond, patience} {
			_, err := sub.Next(t.Context(), jetpull.MaxWait(wait))
			requireIs(t, err, nats.ErrPermissionViolation)
		}
	}
	allow()
	m, err := sub.Next(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Ack())
	other := subscribe(t, js, "S", "C")
	proxy.BlackHole(true)
	for _, s := range []*jetpull.Subscription{other, sub} {
		_, err := s.Next(t.Context(), jetpull.MaxWait(3*time.Second))
		requireIs(t, err, jetpull.ErrTimeout)
		require.NotErrorIs(t, err, nats.ErrPermissionViolation)
	}
	require.ErrorIs(t, js.Conn().LastError(), nats.ErrPermissionViolation, "it is still what nats.go heard last")
	proxy.BlackHole(false)
	for _, s := range []*jetpull.Subscription{other, sub} {
		m, err := s.Next(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Ack())
	}
}

// TestPullAfterAPermissionWasTakenAndGiven: neither the Subscription whose pull
// was refused nor another one on the same consumer, idle at the time, takes a later
// silence for that.
func TestPullAfterAPermissionWasTakenAndGiven(t *testing.T) {
	t.Parallel()
	js, proxy, deny := deniable(t, "other.subject")
	refused, idle := subscribe(t, js, "S", "C"), subscribe(t, js, "S", "C")
	both := []*jetpull.Subscription{refused, idle}
	pull := func(s *jetpull.Subscription) {
		m, err := s.Next(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Nak())
	}
	for _, s := range both {
		pull(s)
	}
	deny(nextSubject)
	_, err := refused.Next(t.Context(), jetpull.MaxWait(3*time.Second))
	requireIs(t, err, nats.ErrPermissionViolation)
	first := js.Conn().LastError()
	_, err = refused.Next(t.Context(), jetpull.NoWait())
	requireIs(t, err, nats.ErrPermissionViolation)
	require.NotSame(t, first, js.Conn().LastError(), "each refusal is another")
	deny("other.subject")
	for _, s := range both {
		pull(s)
	}
	proxy.BlackHole(true)
	for _, s := range both {
		_, err := s.Next(t.Context(), jetpull.MaxWait(3*time.Second))
		requireIs(t, err, jetpull.ErrTimeout)
		require.NotErrorIs(t, err, nats.ErrPermissionViolation)
	}
	proxy.BlackHole(false)
}
