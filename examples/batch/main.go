// Batch writes orders to an SQLite database, many in one transaction. When a transaction is committed, its orders are acknowledged together.
// An order that is delivered twice is stored once. If a transaction fails, its orders are retried later. An order that can never be written
// becomes a dead letter.
//
// Without -nats, it starts its own server. Without -db, it uses a temporary database. It exits when all orders are handled, or on Ctrl-C.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"time"

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

// writer writes batches of orders, and counts the transactions.
type writer struct {
	db           *sql.DB
	transactions int
}

// write writes the orders of a batch in one transaction. It skips an order that is already in the table. An invalid order fails alone; if the
// transaction fails, all orders of the batch fail.
func (w *writer) write(ctx context.Context, ms []*jetpull.Msg) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	failed := jetpull.BatchError{}
	for _, m := range ms {
		var o order
		if err := json.Unmarshal(m.Data(), &o); err != nil {
			failed[m] = fmt.Errorf("%w: %w", jetpull.ErrPayload, err) // not retried: it becomes a dead letter
			continue
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, customer) VALUES (?, ?) ON CONFLICT DO NOTHING", o.ID, o.Customer); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	w.transactions++
	return failed
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
	w := &writer{db: db}
	// A batch has 100 orders, or fewer if its first order has waited for 100 ms.
	err = sub.ConsumeBatch(ctx, batch, 100*time.Millisecond, w.write, jetpull.MaxAttempts(attempts), jetpull.DeadLetter(deadSubject),
		jetpull.RetryDelays(time.Second, 10*time.Second, time.Minute), jetpull.StopAfter(orders))
	if err != nil {
		return err
	}
	var rows int
	if err := db.QueryRowContext(context.WithoutCancel(ctx), "SELECT count(*) FROM orders").Scan(&rows); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d rows in %d transactions, %d dead letters\n", rows, w.transactions, sub.Stats().DeadLettered)
	return err
}

// backlog creates the streams and the consumer, and publishes the orders. The last order is not JSON.
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
