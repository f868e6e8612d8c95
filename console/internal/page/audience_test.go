package page

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/console/internal/view"
)

// requeued is an account with a stream of orders and one of dead letters, which records what is published.
type requeued struct {
	*storedStream
	published []*nats.Msg
	deleted   []uint64
	// lost and kept are the errors of a publish and of a delete.
	lost, kept error
}

func (r *requeued) Stream(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	if name == "ORDERS" {
		return &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>", "requeue.*"}}}, nil
	}
	return r.storedStream.Stream(ctx, name)
}

func (r *requeued) PublishMsg(_ context.Context, m *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	r.published = append(r.published, m)
	return &jetstream.PubAck{Stream: "ORDERS", Sequence: 91}, r.lost
}

func (r *requeued) DeleteMessage(_ context.Context, _ string, seq uint64) error {
	r.deleted = append(r.deleted, seq)
	return r.kept
}

func (r *requeued) Inbox() string { return nats.InboxPrefix }

// A requeue names every consumer that gets the message again, and can be for one consumer only.
func TestRequeueNamesItsConsumers(t *testing.T) {
	of := func(stream, name string, filters ...string) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{Stream: stream, Name: name, Config: jetstream.ConsumerConfig{FilterSubjects: filters}}
	}
	source := &requeued{storedStream: newStream("DLQ", "dlq")}
	for _, consumer := range []string{"billing", "mail"} {
		source.store(1, jetstream.RawStreamMsg{Subject: "dlq", Header: nats.Header{
			jetpull.HeaderDeadSubject: {"orders.new"}, jetpull.HeaderDeadStream: {"ORDERS"}, jetpull.HeaderDeadConsumer: {consumer},
		}})
	}
	r := newReader(t, source, of("ORDERS", "billing", "orders.*", "requeue.billing"), of("ORDERS", "mail", "orders.new"),
		of("ORDERS", "paid", "orders.paid"), of("OTHER", "all"))
	letters := r.pages.letters
	q := url.Values{"stream": {"DLQ"}, "seq": {"1"}}
	page, err := r.pages.message(t.Context(), Request{Query: q, Now: time.Now(), Payloads: true})
	require.NoError(t, err)
	action := page.Action("requeue")
	require.Contains(t, action.Confirm, "These consumers get it again: ORDERS/billing, ORDERS/mail.")
	outcome, err := action.Do(t.Context(), url.Values{"only": {"own"}})
	require.NoError(t, err)
	require.Equal(t, "message?outcome=1&seq=91&stream=ORDERS", outcome.Then, "the next page shows the outcome")
	require.Equal(t, "requeue.billing", source.published[0].Subject)
	require.Equal(t, "ORDERS", source.published[0].Header.Get(jetstream.ExpectedStreamHeader))
	require.Equal(t, []uint64{1}, source.deleted)

	q.Set("seq", "2")
	page, err = r.pages.message(t.Context(), Request{Query: q, Now: time.Now(), Payloads: true})
	require.NoError(t, err)
	_, err = page.Action("requeue").Do(t.Context(), url.Values{"only": {"own"}})
	require.ErrorContains(t, err, "its consumer has no subject of its own")
	require.Len(t, source.published, 1, "nobody else gets it")

	list, err := letters.list(t.Context(), Request{Query: url.Values{"stream": {"DLQ"}}, Now: time.Now()})
	require.NoError(t, err)
	all := list.Action("requeue-all")
	require.Contains(t, all.Preview(t.Context(), url.Values{}), "These consumers get it again: ORDERS/billing, ORDERS/mail.")
	own := all.Preview(t.Context(), url.Values{"only": {"own"}})
	require.Contains(t, own, "These consumers get it again: ORDERS/billing.")
	require.Contains(t, own, "its consumer has no subject of its own")
}

// An answer that was lost is no refusal: the message may have been published.
func TestRequeueThatIsNotConfirmed(t *testing.T) {
	source := &requeued{storedStream: newStream("DLQ", "dlq"), lost: context.DeadlineExceeded}
	source.store(1, jetstream.RawStreamMsg{Subject: "dlq", Header: nats.Header{
		jetpull.HeaderDeadSubject: {"orders.new"}, jetpull.HeaderDeadStream: {"ORDERS"}, jetpull.HeaderDeadConsumer: {"billing"},
	}})
	r := newReader(t, source)
	page, err := r.pages.message(t.Context(), Request{Query: url.Values{"stream": {"DLQ"}, "seq": {"1"}}, Now: time.Now(), Payloads: true})
	require.NoError(t, err)
	for _, action := range []string{"requeue", "copy"} {
		_, err = page.Action(action).Do(t.Context(), url.Values{"subject": {"orders.new"}})
		require.ErrorContains(t, err, "Whether the action took effect is not known")
	}
	source.lost, source.kept = nil, errors.New("the stream does not allow it")
	_, err = page.Action("requeue").Do(t.Context(), url.Values{})
	require.ErrorContains(t, err, "The dead letter stays here: it was published to orders.new, but not deleted here: the stream does not allow it")
}

// The page of a message states what each consumer has done with it, so the outcome of a requeue is there.
func TestFates(t *testing.T) {
	source := newStream("ORDERS", "orders.>", "dlq")
	source.store(10, jetstream.RawStreamMsg{Subject: "orders.new"})
	source.store(1, jetstream.RawStreamMsg{Subject: "dlq", Header: nats.Header{
		jetpull.HeaderDeadSubject: {"orders.new"}, jetpull.HeaderDeadStream: {"ORDERS"}, jetpull.HeaderDeadConsumer: {"failed"},
		jetpull.HeaderDeadSequence: {"5"},
	}})
	of := func(name string, floor, delivered uint64) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{
			Stream: "ORDERS", Name: name, AckFloor: jetstream.SequenceInfo{Stream: floor}, Delivered: jetstream.SequenceInfo{Stream: delivered},
			Config: jetstream.ConsumerConfig{FilterSubject: "orders.*"},
		}
	}
	r := newReader(t, source, of("done", 5, 5), of("busy", 4, 6), of("late", 4, 4), of("failed", 9, 9))
	page, err := r.pages.message(t.Context(), Request{Query: url.Values{"stream": {"ORDERS"}, "seq": {"5"}}, Now: time.Now(), Payloads: true})
	require.NoError(t, err)
	fates := map[string]string{}
	for _, row := range page.Parts[1].List.Rows {
		fates[row.Cells[0].Text] = row.Cells[1].Text
	}
	require.Equal(t, map[string]string{"done": "passed", "busy": "delivered, perhaps not acknowledged", "late": "waits", "failed": "given up"}, fates)
	require.Equal(t, "4 consumers of this subject", page.Parts[1].List.Found)
	require.Equal(t, view.Plain, page.Parts[1].List.Rows[0].Cells[1].Tone, "a consumer that began later did not acknowledge it")
	source.letter(maxScanned+1, "card refused")
	r.pages.letters.latest.Next(t.Context())
	page, err = r.pages.message(t.Context(), Request{Query: url.Values{"stream": {"ORDERS"}, "seq": {"5"}}, Now: time.Now(), Payloads: true})
	require.NoError(t, err)
	require.Equal(t, "4 consumers of this subject; not all dead letters were searched for this message", page.Parts[1].List.Found)

	gone := url.Values{"stream": {"ORDERS"}, "seq": {"99999"}}
	_, err = r.pages.message(t.Context(), Request{Query: gone, Now: time.Now()})
	require.ErrorContains(t, err, "does not have this message any more")
	gone.Set("outcome", "1")
	page, err = r.pages.message(t.Context(), Request{Query: gone, Now: time.Now()})
	require.NoError(t, err, "a worker of a work queue was faster than the page")
	require.Contains(t, page.Parts[0].Problem, "It was acknowledged")
}
