package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/test/servertest"
)

const orders = 2003 // a prime number

func TestDemo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, screen bytes.Buffer
	require.NoError(t, run(t.Context(), settings{orders: orders}, &out, &screen))
	text := out.String()

	require.Regexp(t, `(?m)^publish +PublishAsync of nats.go +1 +2,003 `, text)
	require.Regexp(t, `(?m)^fetch +Fetch\(200\), ConfirmAcks +4 +1,203 `, text)
	require.Regexp(t, `(?m)^next +Next, AckNext +16 +400 `, text)
	require.Regexp(t, `(?m)^pinned +Next, Ack +1 of 2 +400 `, text)

	require.Regexp(t, `(?s)unpin requested.*unpin requested`, text)
	require.Regexp(t, `(Ada|Grace) is pinned`, text, "in no order: Next does not wait for OnPin")
	require.Regexp(t, `Ada did [1-9]\d*, Grace [1-9]\d*, out of order 0`, text, "the stand-by took over")

	require.Contains(t, text, "The counters of the server after a restart on the same files:")
	require.Regexp(t, `(?m)^fetch +1,203 +0 +[\d,]+ of [\d,]+ +0 +0$`, text)
	require.Regexp(t, `(?m)^next +400 +0 +[\d,]+ of [\d,]+ +0 +0$`, text)
	require.Regexp(t, `(?m)^pinned +400 +0 +[\d,]+ of [\d,]+ +0 +0$`, text)
	require.Contains(t, text, "All 2,003 orders, worth ")

	require.Regexp(t, `(?m)^publish: 2,003 in `, screen.String())
	require.Regexp(t, `(?m)^pinned: 400 in `, screen.String())
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "the temporary store is removed")
}

func TestStoreIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), settings{orders: minOrders, store: dir}, &out, io.Discard))
	require.Contains(t, out.String(), "The store is in "+dir)

	srv, err := natsembed.Start(t.Context(), natsembed.Options{Dir: dir})
	require.NoError(t, err)
	defer srv.Stop()
	nc, err := nats.Connect(srv.URL())
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	s, err := js.Stream(t.Context(), stream)
	require.NoError(t, err)
	require.EqualValues(t, minOrders, s.CachedInfo().State.Msgs)
	require.Equal(t, 3, s.CachedInfo().State.Consumers)

	err = run(t.Context(), settings{orders: minOrders, url: srv.URL()}, io.Discard, io.Discard)
	require.ErrorContains(t, err, "there is a stream DEMO_ORDERS already")
}

func TestServerOfTheUsersOwn(t *testing.T) {
	srv := servertest.RunServer(t)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), settings{orders: minOrders, url: srv.URL()}, &out, io.Discard))
	require.Contains(t, out.String(), "The counters of the server:")
	require.NotContains(t, out.String(), "restart")
	js, err := jetstream.New(srv.Connect(t))
	require.NoError(t, err)
	_, err = js.Stream(t.Context(), stream)
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound, "the stream is deleted")
}

func TestLedgerReportsViolations(t *testing.T) {
	message := func(id int) jetstream.Msg {
		return body{data: []byte(`{"id":` + string(rune('0'+id)) + `,"cents":` + "5}")}
	}
	l := newLedger(2)
	l.publish(order{ID: 0, Cents: 5})
	l.publish(order{ID: 1, Cents: 5})
	require.NoError(t, l.settle(message(0)))
	require.False(t, l.balance().even(), "one is missing")
	require.NoError(t, l.settle(message(1)))
	require.True(t, l.balance().even())
	require.NoError(t, l.settle(message(1)))
	require.False(t, l.balance().even(), "one was repeated")
	require.ErrorContains(t, l.settle(message(2)), "never published")
	require.ErrorContains(t, l.settle(body{data: []byte("no JSON")}), "is no order")
}

// body is a message that has only a payload.
type body struct {
	jetstream.Msg
	data []byte
}

func (b body) Data() []byte  { return b.data }
func (b body) Reply() string { return "" }

func TestShares(t *testing.T) {
	for _, n := range []int{100, 101, 999, 2003, 20_000} {
		counted := map[string]int{}
		d := &demo{orders: n}
		for _, consumer := range d.destinations() {
			counted[consumer]++
		}
		for i, p := range parts() {
			require.Equal(t, sharesOf(n)[i], counted[p.consumer], "%s of %d", p.consumer, n)
		}
	}
}

func TestSettings(t *testing.T) {
	require.NoError(t, settings{orders: 1000}.check(nil))
	require.ErrorContains(t, settings{orders: 1000}.check([]string{"fast"}), `"fast"`)
	require.ErrorContains(t, settings{orders: 99}.check(nil), "99")
	require.ErrorContains(t, settings{orders: 1000, url: "nats://127.0.0.1", store: "x"}.check(nil), "-store")
}
