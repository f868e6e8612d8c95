package inbox_test

import (
	"context"
	"database/sql"
	"log"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/inbox"
)

type payment struct {
	Account string
	Cents   int64
}

// book adds a payment to its account, once for each message.
func book(ctx context.Context, tx *sql.Tx, m *jetpull.Msg) error {
	return jetpull.HandleJSON(func(ctx context.Context, p payment, _ *jetpull.Msg) error {
		_, err := tx.ExecContext(ctx, "UPDATE accounts SET cents = cents + $1 WHERE name = $2", p.Cents, p.Account)
		return err
	})(ctx, m)
}

func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	db, err := sql.Open("pgx", "postgres://localhost/bank") // with import _ "github.com/jackc/pgx/v5/stdlib"
	if err != nil {
		log.Fatal(err)
	}
	if err := inbox.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	sub, err := jetpull.Subscribe(ctx, js, "PAYMENTS", "bank")
	if err != nil {
		log.Fatal(err)
	}
	if err := sub.Consume(ctx, inbox.Handler(db, book), jetpull.Concurrency(8)); err != nil {
		log.Print(err)
	}
	stop()
}
