package jetpulltest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/jetpulltest"
)

func ExampleHandle() {
	type order struct{ ID int }
	handler := jetpull.HandleJSON(func(_ context.Context, o order, _ *jetpull.Msg) error {
		if o.ID == 0 {
			return jetpull.Terminate("an order needs an ID", nil)
		}
		return nil
	})
	for _, body := range []string{`{"ID":1}`, `{}`} {
		got := jetpulltest.Handle(context.Background(), handler, jetpulltest.NewMsg("orders.created", []byte(body)))
		fmt.Printf("%s: %s %q\n", body, got.Verb, got.Reason)
	}
	// Output:
	// {"ID":1}: ack ""
	// {}: term "an order needs an ID"
}

func TestNewMsg(t *testing.T) {
	stored := time.Unix(1_700_000_000, 5)
	m := jetpulltest.NewMsg("orders.created", []byte("body"), jetpulltest.Stream("ORDERS", "worker"), jetpulltest.Sequence(7), jetpulltest.Delivered(3),
		jetpulltest.Stored(stored), jetpulltest.Pending(9), jetpulltest.Header("A", "1"), jetpulltest.Header("A", "2"))
	require.Equal(t, "orders.created", m.Subject())
	require.Equal(t, "body", string(m.Data()))
	require.Equal(t, []string{"1", "2"}, m.Headers().Values("A"))
	require.EqualValues(t, 7, m.Sequence())
	require.EqualValues(t, 3, m.Delivered())
	meta, err := m.Metadata()
	require.NoError(t, err)
	require.Equal(t, &jetstream.MsgMetadata{
		Sequence: jetstream.SequencePair{Consumer: 7, Stream: 7}, NumDelivered: 3, NumPending: 9,
		Timestamp: stored, Stream: "ORDERS", Consumer: "worker",
	}, meta)
	require.Nil(t, jetpulltest.NewMsg("a", nil).Headers())
}

func TestHandle(t *testing.T) {
	ctx := t.Context()
	failed := errors.New("failed")
	for name, tt := range map[string]struct {
		h    jetpull.Handler
		want jetpulltest.Outcome
	}{
		"nil":   {func(context.Context, *jetpull.Msg) error { return nil }, jetpulltest.Outcome{Verb: jetpulltest.Ack}},
		"error": {func(context.Context, *jetpull.Msg) error { return failed }, jetpulltest.Outcome{Verb: jetpulltest.Nak, Err: failed}},
		"retry": {
			func(context.Context, *jetpull.Msg) error { return jetpull.Retry(time.Minute, failed) },
			jetpulltest.Outcome{Verb: jetpulltest.Nak, Delay: time.Minute, Err: failed},
		},
		"terminate": {
			func(context.Context, *jetpull.Msg) error { return jetpull.Terminate("no use", failed) },
			jetpulltest.Outcome{Verb: jetpulltest.Term, Reason: "no use", Err: failed},
		},
		"payload": {
			jetpull.HandleJSON(func(context.Context, int, *jetpull.Msg) error { return nil }),
			jetpulltest.Outcome{Verb: jetpulltest.Term, Reason: `failed 1 times: jetpull: bad payload: 4 bytes on a are not JSON for int: invalid character 'b' looking for beginning of value`, Err: jetpull.ErrPayload},
		},
		"ack": {func(_ context.Context, m *jetpull.Msg) error { return m.Ack() }, jetpulltest.Outcome{Verb: jetpulltest.Ack}},
		"double ack": {
			func(ctx context.Context, m *jetpull.Msg) error { return m.DoubleAck(ctx) },
			jetpulltest.Outcome{Verb: jetpulltest.Ack, Confirmed: true},
		},
		"confirmed": {
			func(ctx context.Context, m *jetpull.Msg) error { return jetpull.ConfirmAcks(ctx, m) },
			jetpulltest.Outcome{Verb: jetpulltest.Ack, Confirmed: true},
		},
		"nak": {func(_ context.Context, m *jetpull.Msg) error { return m.Nak() }, jetpulltest.Outcome{Verb: jetpulltest.Nak}},
		"nak with delay": {
			func(_ context.Context, m *jetpull.Msg) error { return m.NakWithDelay(time.Hour) },
			jetpulltest.Outcome{Verb: jetpulltest.Nak, Delay: time.Hour},
		},
		"term": {func(_ context.Context, m *jetpull.Msg) error { return m.Term() }, jetpulltest.Outcome{Verb: jetpulltest.Term}},
		"in progress": {func(_ context.Context, m *jetpull.Msg) error {
			return errors.Join(m.InProgress(), m.InProgress())
		}, jetpulltest.Outcome{Verb: jetpulltest.Ack, InProgress: 2}},
		"ack next": {func(ctx context.Context, m *jetpull.Msg) error {
			_, err := m.AckNext(ctx)
			return err
		}, jetpulltest.Outcome{Verb: jetpulltest.Ack, Err: jetpull.ErrNoMessages}},
		"settled twice": {
			func(_ context.Context, m *jetpull.Msg) error { return errors.Join(m.Ack(), m.Nak()) },
			jetpulltest.Outcome{Verb: jetpulltest.Ack, Err: jetstream.ErrMsgAlreadyAckd},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := jetpulltest.NewMsg("a", []byte("body"))
			got := jetpulltest.Handle(ctx, tt.h, m)
			require.ErrorIs(t, got.Err, tt.want.Err)
			got.Err = tt.want.Err
			require.Equal(t, tt.want, got)
			tt.want.Err = nil
			require.Equal(t, tt.want, jetpulltest.OutcomeOf(m))
		})
	}
	var none *jetpull.TerminateError
	got := jetpulltest.Handle(ctx, func(context.Context, *jetpull.Msg) error { return none }, jetpulltest.NewMsg("a", nil))
	require.Equal(t, jetpulltest.Nak, got.Verb)
	got = jetpulltest.Handle(ctx, func(context.Context, *jetpull.Msg) error { panic("no") }, jetpulltest.NewMsg("a", nil))
	require.Equal(t, jetpulltest.Nak, got.Verb)
	require.ErrorContains(t, got.Err, "panicked: no")
}

func TestRecorder(t *testing.T) {
	failed := errors.New("failed")
	r := jetpulltest.NewRecorder(func(_ context.Context, m *jetpull.Msg) error {
		if m.Sequence() == 2 {
			return failed
		}
		return nil
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.Wait(ended, 1)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "0 of 1 calls")
	var handlers sync.WaitGroup
	for i := range 3 {
		m := jetpulltest.NewMsg("a", nil, jetpulltest.Sequence(uint64(i)+1))
		handlers.Go(func() { jetpulltest.Handle(t.Context(), r.Handle, m) })
	}
	calls, err := r.Wait(t.Context(), 3)
	require.NoError(t, err)
	handlers.Wait()
	require.Equal(t, calls, r.Calls())
	for _, c := range calls {
		require.Equal(t, c.Msg.Sequence() == 2, c.Err != nil)
	}
	require.NoError(t, jetpulltest.NewRecorder(nil).Handle(t.Context(), jetpulltest.NewMsg("a", nil)))
}
