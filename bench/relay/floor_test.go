package relay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	// floorTogether is the number of messages of a request that are stored together, as in the relay.
	floorTogether = 256
	// floorWorkers is the number of workers of a queue: as many as the four receivers of the crowd have in the relay.
	floorWorkers = 4 * 64
)

// floor stores the same data for each message as the relay, at the same points, and does nothing else. It has no routing, limits,
// retries, order, signatures, traces, metrics, or recovery after a crash. No program that stores as much can be much faster.
type floor struct {
	js               jetstream.JetStream
	post             *webhook.Client
	receiver, sender string // URLs; sender is empty one way
}

// floorRecord is a message without its payload.
type floorRecord struct {
	Source   string `json:"source_id"`
	ID       string `json:"message_id"`
	Receiver string `json:"receiver"`
	Status   string `json:"status,omitempty"`
	Revision uint64 `json:"revision,omitempty"`
}

// floorEntry is a message, as a line of a request or an entry of a queue.
type floorEntry struct {
	floorRecord
	Payload json.RawMessage `json:"payload,omitempty"` // in a queue, it follows the line
}

func serveFloor(ctx context.Context, dir, receiver, sender string, ready func(urls ...string)) error {
	js, stop, err := embedded(ctx, natsembed.Options{
		Dir: dir, Port: natsembed.NoPort, Configure: func(o *server.Options) error { o.NoSublistCache = true; return nil },
	}, jetstream.WithPublishAsyncMaxPending(16<<10))
	if err != nil {
		return err
	}
	defer stop()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "record", Subjects: []string{"record.>"}, MaxMsgsPerSubject: 1}); err != nil {
		return err
	}
	f := &floor{js, webhook.NewClient(webhook.Policy{Any: true}, waitTimeout), receiver, sender}
	var workers errgroup.Group
	for queue, handle := range map[string]jetpull.Handler{"to_receiver": f.toReceiver, "to_sender": f.toSender} {
		sub, err := f.queue(ctx, queue)
		if err != nil {
			return err
		}
		workers.Go(func() error { return sub.Consume(ctx, handle, jetpull.Concurrency(floorWorkers)) })
	}
	intake := httptest.NewServer(http.HandlerFunc(f.batch))
	defer intake.Close()
	ready(intake.URL)
	return workers.Wait()
}

func (f *floor) queue(ctx context.Context, name string) (*jetpull.Subscription, error) {
	if _, err := f.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".>"},
		Retention: jetstream.WorkQueuePolicy,
	}); err != nil {
		return nil, err
	}
	c := jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, MemoryStorage: true}
	if _, err := f.js.CreateConsumer(ctx, name, c); err != nil {
		return nil, err
	}
	return jetpull.Subscribe(ctx, f.js, name, name)
}

// batch is the HTTP intake.
func (f *floor) batch(w http.ResponseWriter, r *http.Request) {
	var entries []floorEntry
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		var e floorEntry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		entries = append(entries, e)
	}
	err := lines.Err()
	for len(entries) > 0 && err == nil {
		together := entries[:min(floorTogether, len(entries))]
		err, entries = f.accept(r.Context(), together), entries[len(together):]
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// accept stores the records, and then the entries for the receiver.
func (f *floor) accept(ctx context.Context, entries []floorEntry) error {
	stored := make([]stored, len(entries))
	for i := range entries {
		entries[i].Status = "ARRIVED"
		stored[i] = f.swap(entries[i].floorRecord)
	}
	for i, wait := range stored {
		revision, err := wait(ctx)
		if err != nil {
			return err
		}
		entries[i].Revision = revision
		stored[i] = f.enqueue("to_receiver."+entries[i].Receiver, entries[i])
	}
	for _, wait := range stored {
		if _, err := wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// post reads an answer to its end, so that the connection is used again, as the relay's connections are.
func post(ctx context.Context, client *webhook.Client, r webhook.Request) (*webhook.Answer, error) {
	r.Method, r.Limit = http.MethodPost, webhook.ReusableLimit
	answer, err := client.Exchange(ctx, r)
	if err == nil {
		err = answer.Err()
	}
	return answer, err
}

// toReceiver POSTs a message of the queue. For a round trip, it puts the result into the queue of the sender.
func (f *floor) toReceiver(ctx context.Context, m *jetpull.Msg) error {
	e, err := decodeFloor(m)
	if err != nil {
		return err
	}
	if err := f.advance(ctx, &e, "SENDING"); err != nil {
		return err
	}
	answer, err := post(ctx, f.post, webhook.Request{URL: f.receiver, Body: e.Payload})
	if err != nil {
		return err
	}
	if f.sender == "" {
		return f.advance(ctx, &e, "DONE")
	}
	if err := f.advance(ctx, &e, "RESPONSE"); err != nil {
		return err
	}
	e.Payload = answer.Body
	_, err = f.enqueue("to_sender.s", e)(ctx)
	return err
}

// toSender POSTs a response to the sender.
func (f *floor) toSender(ctx context.Context, m *jetpull.Msg) error {
	e, err := decodeFloor(m)
	if err != nil {
		return err
	}
	if _, err := post(ctx, f.post, webhook.Request{URL: f.sender, Body: e.Payload}); err != nil {
		return err
	}
	return f.advance(ctx, &e, "DONE")
}

// advance replaces the record of an entry by one with the next status.
func (f *floor) advance(ctx context.Context, e *floorEntry, status string) (err error) {
	e.Status = status
	e.Revision, err = f.swap(e.floorRecord)(ctx)
	return err
}

// stored waits until a message is stored, and returns its sequence.
type stored func(context.Context) (uint64, error)

func (f *floor) swap(r floorRecord) stored {
	return f.publish("record."+r.Source+"."+r.ID, r, nil, jetstream.WithExpectLastSequencePerSubject(r.Revision))
}

func (f *floor) enqueue(queue string, e floorEntry) stored {
	id := e.Source + "." + e.ID
	return f.publish(queue+"."+id, e.floorRecord, e.Payload, jetstream.WithMsgID(fmt.Sprintf("%s.%d", id, e.Revision)))
}

func decodeFloor(m *jetpull.Msg) (e floorEntry, err error) {
	line, payload, _ := bytes.Cut(m.Data(), []byte{'\n'})
	err = json.Unmarshal(line, &e)
	e.Payload = payload
	return e, err
}

func (f *floor) publish(subject string, r floorRecord, payload []byte, opts ...jetstream.PublishOpt) stored {
	line, err := json.Marshal(r)
	if err != nil {
		return func(context.Context) (uint64, error) { return 0, err }
	}
	if payload != nil {
		line = append(append(line, '\n'), payload...)
	}
	future, err := f.js.PublishAsync(subject, line, opts...)
	return func(ctx context.Context) (uint64, error) {
		if err != nil {
			return 0, err
		}
		select {
		case ack := <-future.Ok():
			return ack.Sequence, nil
		case err := <-future.Err():
			return 0, err
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}
