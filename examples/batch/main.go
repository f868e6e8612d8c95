// Batch writes orders to an SQLite database, many in one transaction, and acknowledges those of a transaction together
// when it is committed. An order that is delivered twice is in the table once. A batch that cannot be written is retried
// later. Orders that no attempt can write go to a stream of dead letters.
//
// It needs nothing: without -nats it starts a server of its own, and without -db the database is in a temporary
// folder. It ends by itself when all orders are written, and before that with Ctrl-C.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	stream, consumer, subject = "EXAMPLE_BATCH", "writer", "example.batch"
	dead, deadSubject         = "EXAMPLE_BATCH_DEAD", "example.dead"
	orders, batch, attempts   = 1000, 100, 5
)

type order struct {
	ID       int
	Customer string
}

func main() {
	url := flag.String("nats", "", "server to use; empty starts one in this process")
	db := flag.String("db", "", "file of the database; empty for a temporary one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *url, *db, os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// writer writes batches.
type writer struct {
	db                               *sql.DB
	js                               jetstream.JetStream
	written, transactions, deadOrder int
}

// consume fetches batches until all orders are done with, or ctx ends. A batch has 100 orders, or what has come within
// 100 ms. It has to be written within the consumer's AckWait.
func (w *writer) consume(ctx context.Context, sub *jetpull.Subscription) error {
	for w.written+w.deadOrder < orders && ctx.Err() == nil {
		ms, err := sub.Fetch(ctx, batch, jetpull.FillBatch(), jetpull.MaxWait(100*time.Millisecond))
		switch {
		case err == nil:
			w.handle(ctx, ms)
		case ctx.Err() == nil && !errors.Is(err, jetpull.ErrTimeout):
			return err
		}
	}
	return nil
}

// handle writes a batch and settles each of its messages.
func (w *writer) handle(ctx context.Context, ms []*jetpull.Msg) {
	var good []*jetpull.Msg
	var rows []order
	for _, m := range ms {
		var o order
		if err := json.Unmarshal(m.Data(), &o); err != nil {
			w.deadLetter(ctx, m, fmt.Errorf("no order: %w", err))
			continue
		}
		good, rows = append(good, m), append(rows, o)
	}
	if len(good) == 0 {
		return
	}
	if err := w.insert(ctx, rows); err != nil { // none of them is in the table
		for _, m := range good {
			if m.Delivered() >= attempts {
				w.deadLetter(ctx, m, err)
			} else {
				retry(m)
			}
		}
		return
	}
	w.written, w.transactions = w.written+len(good), w.transactions+1
	// They are in the table, whatever comes of this. One that is not confirmed in time, here 5 s, is redelivered after
	// AckWait, and its row is there by then.
	if err := jetpull.ConfirmAcks(context.WithoutCancel(ctx), good...); err != nil {
		log.Print(err)
	}
}

// insert writes orders in one transaction. One that was written before changes nothing.
func (w *writer) insert(ctx context.Context, rows []order) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	for _, o := range rows {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, customer) VALUES (?, ?) ON CONFLICT DO NOTHING", o.ID, o.Customer); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// retry has a message redelivered after a second, which doubles with each delivery.
func retry(m *jetpull.Msg) {
	if err := m.NakWithDelay(time.Second << min(m.Delivered()-1, 6)); err != nil {
		log.Print(err) // it is redelivered after AckWait
	}
}

// deadLetter ends a message when its copy is stored, and not before. The copy has the same message id at each try, so that
// it is stored once.
func (w *writer) deadLetter(ctx context.Context, m *jetpull.Msg, reason error) {
	c := nats.NewMsg(deadSubject)
	c.Data = m.Data()
	c.Header.Set("Reason", reason.Error())
	if _, err := w.js.PublishMsg(ctx, c, jetstream.WithMsgID(fmt.Sprintf("%s:%d", stream, m.Sequence()))); err != nil {
		log.Print(err)
		retry(m)
		return
	}
	w.deadOrder++
	if err := m.TermWithReason(reason.Error()); err != nil {
		log.Print(err)
	}
}

func run(ctx context.Context, url, file string, out io.Writer) error {
	if file == "" {
		dir, err := os.MkdirTemp("", "jetpull-batch-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		file = filepath.Join(dir, "orders.db")
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL)"); err != nil {
		return err
	}
	nc, stop, err := natsembed.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer stop()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	remove, err := backlog(ctx, js)
	if err != nil {
		return err
	}
	defer remove()

	sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	w := &writer{db: db, js: js}
	if err := w.consume(ctx, sub); err != nil {
		return err
	}
	var rows int
	if err := db.QueryRowContext(context.WithoutCancel(ctx), "SELECT count(*) FROM orders").Scan(&rows); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d rows in %d transactions, %d dead letters\n", rows, w.transactions, w.deadOrder)
	return err
}

// backlog makes the streams and the consumer, with orders of which the last is broken.
func backlog(ctx context.Context, js jetstream.JetStream) (remove func(), err error) {
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{subject}}); err != nil {
		return nil, err
	}
	remove = func() {
		_ = js.DeleteStream(context.WithoutCancel(ctx), stream)
		_ = js.DeleteStream(context.WithoutCancel(ctx), dead)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: dead, Subjects: []string{deadSubject}}); err != nil {
		remove()
		return nil, err
	}
	if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer}); err != nil {
		remove()
		return nil, err
	}
	for i := range orders {
		body := fmt.Appendf(nil, `{"id":%d,"customer":"customer %d"}`, i+1, i%7)
		if i == orders-1 {
			body = []byte("two chairs")
		}
		if _, err := js.Publish(ctx, subject, body); err != nil {
			remove()
			return nil, err
		}
	}
	return remove, nil
}
