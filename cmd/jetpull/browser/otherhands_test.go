package test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/natsembed/embedtest"
)

// Other programs delete and recreate what a page is about. Its next state says so, and an action on what is gone does not claim to have worked.
func TestWhatIsDeletedByOthers(t *testing.T) {
	t.Parallel()
	cfg := jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy}
	env := embedtest.StartWith(t, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}, cfg)
	publish(t, env.JS, "orders.new", 3)
	base := serve(t, console.Config{NATS: console.JetStream(env.JS), Loopback: true})
	p := &plain{t: t, base: base}
	const consumer = "consumer?stream=ORDERS&name=billing"
	shows := func(page, want string) {
		t.Helper()
		require.Eventually(t, func() bool { p.open(page); return strings.Contains(p.text(), want) }, time.Minute, 20*time.Millisecond, "%s: %s", page, want)
	}
	shows("consumers", "1 consumer")
	shows(consumer, "Pause")
	p.open(consumer + "&do=pause")
	before := *p
	require.NoError(t, env.JS.DeleteConsumer(t.Context(), "ORDERS", "billing"))
	before.press("Pause")
	require.Equal(t, http.StatusNotFound, before.status)
	require.Contains(t, before.text(), "The consumer does not exist any more. Nothing was changed.")
	shows("consumers", "0 consumers")
	shows(consumer, `There is no consumer "billing" on a stream "ORDERS".`)
	_, err := env.JS.CreateConsumer(t.Context(), "ORDERS", cfg)
	require.NoError(t, err)
	shows("consumers", "1 consumer")
	shows(consumer, "Pause")
	require.NoError(t, env.JS.DeleteStream(t.Context(), "ORDERS"))
	shows("messages?stream=ORDERS", "There is no stream")
	shows("consumers", "0 consumers")
}
