package feed_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/natsembed"
)

// A watcher publishes items to a stream; workers, on any number of machines, process them and reply.
func ExampleNewJetStreamProcessor() {
	dir, err := os.MkdirTemp("", "feed")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	nc, disconnect, err := natsembed.Connect(ctx, "") // a server in this process
	if err != nil {
		panic(err)
	}
	defer disconnect()
	js, err := jetstream.New(nc)
	if err != nil {
		panic(err)
	}

	// Once, by whoever sets up NATS:
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "RESUMES", Subjects: []string{"resumes", "resumes.done.>"}, Retention: jetstream.WorkQueuePolicy, AllowMsgTTL: true,
	})
	if err != nil {
		panic(err)
	}
	if _, err = js.CreateConsumer(ctx, "RESUMES", jetstream.ConsumerConfig{Durable: "workers", FilterSubject: "resumes"}); err != nil {
		panic(err)
	}

	// On each machine that works:
	handler, err := feed.JetStreamHandler(js, feed.ProcessorFunc(func(_ context.Context, it feed.Item) (feed.Response, error) {
		return feed.Response{Done: true, Data: []byte(strings.ToUpper(string(it.Data)))}, nil
	}))
	if err != nil {
		panic(err)
	}
	worker, err := jetpull.Subscribe(ctx, js, "RESUMES", "workers")
	if err != nil {
		panic(err)
	}
	worked := make(chan error, 1)
	go func() { worked <- worker.Consume(ctx, handler, jetpull.Concurrency(8)) }()

	// The process with the database:
	store, err := feed.Open(ctx, "sqlite:"+filepath.Join(dir, "feed.db"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	items := []feed.Item{{ID: "1", Data: []byte("ada")}, {ID: "2", Data: []byte("grace")}, {ID: "last", Gate: 1}}
	if _, err := store.CreatePartition(ctx, feed.Partition{ID: "p"}, items...); err != nil {
		panic(err)
	}
	remote, err := feed.NewJetStreamProcessor(ctx, js, "resumes")
	if err != nil {
		panic(err)
	}
	local := feed.ProcessorFunc(func(ctx context.Context, it feed.Item) (feed.Response, error) {
		if it.ID == "last" {
			stop()
			return feed.Response{Done: true}, nil
		}
		return remote.Process(ctx, it)
	})
	fmt.Println(feed.NewWatcher(store, local, feed.Logger(slog.New(slog.DiscardHandler))).Run(ctx), remote.Close(), <-worked)

	list, err := store.Items(context.Background(), feed.Query{Partition: "p"})
	if err != nil {
		panic(err)
	}
	for _, it := range list {
		fmt.Println(it.ID, it.Status, string(it.Data))
	}
	// Output:
	// <nil> <nil> <nil>
	// 1 Complete ADA
	// 2 Complete GRACE
	// last Complete
}
