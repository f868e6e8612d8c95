package backup_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/backup"
	"github.com/jetpull/jetpull/natsembed"
)

// serverWith starts a server for the example.
func serverWith() (nc *nats.Conn, js jetstream.JetStream, stop func()) {
	nc, stop, err := natsembed.Connect(context.Background(), "")
	if err == nil {
		js, err = jetstream.New(nc)
	}
	if err != nil {
		panic(err)
	}
	return nc, js, stop
}

// The streams of one server are copied into a folder, and from there to another server.
func ExampleSave() {
	ctx := context.Background()
	from, js, stop := serverWith()
	defer stop()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "broker_messages", Subjects: []string{"m"}}); err != nil {
		panic(err)
	}
	if _, err := js.Publish(ctx, "m", []byte("two chairs")); err != nil {
		panic(err)
	}
	parent, err := os.MkdirTemp("", "backup")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(parent) }()
	dir := filepath.Join(parent, "backup")

	err = backup.Save(ctx, dir, []string{"broker_messages"}, func(ctx context.Context, stream string) (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { _ = w.CloseWithError(backup.Write(ctx, from, stream, w)) }()
		return r, nil
	})
	fmt.Println("saved:", err)

	to, js, stop := serverWith()
	defer stop()
	fmt.Println("loaded:", backup.Load(ctx, dir, to))
	s, err := js.Stream(ctx, "broker_messages")
	if err != nil {
		panic(err)
	}
	m, err := s.GetMsg(ctx, 1)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", m.Data)
	// Output:
	// saved: <nil>
	// loaded: <nil>
	// two chairs
}
