// Inbox books payments to accounts in an SQLite database. Each payment is booked once, even if its message is redelivered, because one
// transaction stores both the booking and the identity of the message. To show this, the handler of every tenth payment fails after the
// booking, and all messages are delivered a second time.
//
// Without -nats, it starts its own server. The database is in a temporary folder.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/inbox"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	stream, consumer, subject = "EXAMPLE_INBOX", "bank", "example.payments"
	payments, accounts        = 200, 4
)

type payment struct {
	Account int
	Cents   int64
}

func main() {
	url := flag.String("nats", "", "server to use; empty starts one in this process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *url, os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// bank books payments, and counts the calls of its handler.
type bank struct{ calls atomic.Int64 }

// book makes all of its changes through tx.
func (b *bank) book(ctx context.Context, tx *sql.Tx, m *jetpull.Msg) error {
	b.calls.Add(1)
	return jetpull.HandleJSON(func(ctx context.Context, p payment, m *jetpull.Msg) error {
		if _, err := tx.ExecContext(ctx, "UPDATE accounts SET cents = cents + ? WHERE id = ?", p.Cents, p.Account); err != nil {
			return err
		}
		if m.Sequence()%10 == 0 && m.Delivered() == 1 {
			return jetpull.Retry(10*time.Millisecond, fmt.Errorf("payment %d is booked, and the process stumbles", m.Sequence()))
		}
		return nil
	})(ctx, m)
}

func run(ctx context.Context, url string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "jetpull-inbox-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite", filepath.Join(dir, "bank.db"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1) // SQLite allows one writing transaction at a time
	if err := create(ctx, db); err != nil {
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
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{subject}}); err != nil {
		return err
	}
	defer func() { _ = js.DeleteStream(context.WithoutCancel(ctx), stream) }()
	for i := range payments {
		if _, err := js.Publish(ctx, subject, fmt.Appendf(nil, `{"account":%d,"cents":100}`, i%accounts)); err != nil {
			return err
		}
	}
	b := &bank{}
	for range 2 { // the second time, a new consumer of the same name gets all messages again
		if err := consume(ctx, js, inbox.Handler(db, b.book)); err != nil {
			return err
		}
	}
	var cents int
	if err := db.QueryRowContext(context.WithoutCancel(ctx), "SELECT sum(cents) FROM accounts").Scan(&cents); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d messages twice, %d calls, %d cents\n", payments, b.calls.Load(), cents)
	return err
}

func create(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, "CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)"); err != nil {
		return err
	}
	for id := range accounts {
		if _, err := db.ExecContext(ctx, "INSERT INTO accounts (id, cents) VALUES (?, 0)", id); err != nil {
			return err
		}
	}
	return inbox.Migrate(ctx, db)
}

// consume creates the consumer, handles all messages, and deletes the consumer.
func consume(ctx context.Context, js jetstream.JetStream, h jetpull.Handler) error {
	c, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer})
	if err != nil {
		return err
	}
	defer func() { _ = js.DeleteConsumer(context.WithoutCancel(ctx), stream, consumer) }()
	sub, err := jetpull.SubscribeConsumer(ctx, js, c)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	ctx, done := context.WithCancel(ctx)
	defer done()
	var handled atomic.Int64
	return sub.Consume(ctx, func(ctx context.Context, m *jetpull.Msg) error {
		err := h(ctx, m)
		if err == nil && handled.Add(1) == payments {
			done()
		}
		return err
	}, jetpull.Concurrency(4))
}
