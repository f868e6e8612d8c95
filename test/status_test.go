package test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

// TestStatuses makes a real server send the statuses that the model of it does not have. test/model compares all others with
// the server's, and the tests of the root package check what a caller sees of each.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before      func(*testing.T, *rig)
		waiting     bool // the call waits before that
		code        int
		description string
		is          []error
	}{
		"a push consumer": {before: func(t *testing.T, r *rig) {
			require.NoError(t, r.js.DeleteConsumer(t.Context(), "S", "C"))
			_, err := r.js.CreatePushConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "C", DeliverSubject: "push"})
			require.NoError(t, err)
		}, code: 409, description: "Consumer is push based", is: []error{jetpull.ErrNotPull}},
		"no JetStream": {before: func(t *testing.T, r *rig) {
			require.NoError(t, r.server.Unwrap().DisableJetStream())
		}, code: 503, is: []error{jetpull.ErrTimeout, jetpull.ErrNoResponders, nats.ErrNoResponders}},
		"a stream that is deleted": {before: func(t *testing.T, r *rig) {
			require.NoError(t, r.js.DeleteStream(t.Context(), "S"))
		}, waiting: true, code: 409, description: "Consumer Deleted", is: []error{jetpull.ErrConsumerDeleted}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			sub := r.subscribe(t, jetstream.ConsumerConfig{})
			var got <-chan result
			if tc.waiting {
				got = call(t.Context(), sub, 0, jetpull.MaxWait(forever))
				r.waiting(t, 1)
			}
			tc.before(t, r)
			if !tc.waiting {
				got = call(t.Context(), sub, 0, jetpull.MaxWait(time.Second))
			}
			err := receive(t, got, "the end of the call").err
			var status *jetpull.StatusError
			require.ErrorAs(t, err, &status)
			require.Equal(t, []any{tc.code, tc.description, nextSubject}, []any{status.Code, status.Description, status.Subject})
			for _, is := range tc.is {
				require.ErrorIs(t, err, is)
			}
			require.LessOrEqual(t, sub.Stats().Statuses[tc.code], uint64(8), "no hot loop")
			if tc.waiting { // and a 503 is reported with its meaning
				_, err := sub.Next(t.Context(), jetpull.MaxWait(forever))
				require.ErrorIs(t, err, jetpull.ErrConsumerDeleted)
				require.NotZero(t, sub.Stats().Statuses[503])
			}
		})
	}
}
