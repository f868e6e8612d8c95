package limit_test

import (
	"context"
	"log"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/limit"
)

// A bank allows 10 calls a second for each customer, and 2 at a time. Several processes run this program, and together their calls stay within the
// limits.
func ExampleLimiter_Acquire() {
	ctx := context.Background()
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		log.Print(err)
		return
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Print(err)
		return
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "limits", TTL: 24 * time.Hour})
	if err != nil {
		log.Print(err)
		return
	}
	bank, err := limit.Open(ctx, kv, "bank", limit.Config{Rate: 10, Window: time.Second, Concurrent: 2})
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = bank.Close(ctx) }()

	for _, customer := range []string{"ada", "grace", "ada"} {
		if err := call(ctx, bank, customer); err != nil {
			log.Print(err)
		}
	}
}

func call(ctx context.Context, bank *limit.Limiter, customer string) error {
	release, err := bank.Acquire(ctx, customer)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := bank.Context(ctx, customer) // ends if other processes may make calls instead of this one
	defer cancel()
	log.Print("a call for ", customer)
	return ctx.Err()
}
