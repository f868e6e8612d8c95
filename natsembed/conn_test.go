package natsembed_test

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/natsembed"
)

// Messages that were published before a connection is closed reach the server, however many they are.
func TestCloseDeliversWhatWasPublished(t *testing.T) {
	srv := start(t, natsembed.Options{})
	defer srv.Stop()
	reader, err := srv.Connect()
	require.NoError(t, err)
	defer reader.Close()
	const messages = 2000
	var got atomic.Int64
	all := make(chan struct{})
	sub, err := reader.Subscribe("s", func(*nats.Msg) {
		if got.Add(1) == messages {
			close(all)
		}
	})
	require.NoError(t, err)
	require.NoError(t, sub.SetPendingLimits(-1, -1))
	require.NoError(t, reader.Flush())
	writer, err := srv.Connect()
	require.NoError(t, err)
	// More than fits into the buffer of a connection.
	payload := bytes.Repeat([]byte("x"), 4<<10)
	for range messages {
		require.NoError(t, writer.Publish("s", payload))
	}
	writer.Close()
	select {
	case <-all:
	case <-time.After(30 * time.Second):
		t.Fatalf("%d of %d messages arrived", got.Load(), messages)
	}
}

// A connection ends with its server, even during a write.
func TestWritesEndWithTheServer(t *testing.T) {
	srv := start(t, natsembed.Options{})
	nc, err := srv.Connect(nats.NoReconnect())
	require.NoError(t, err)
	writing := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		payload := make([]byte, 64<<10)
		for i := 0; ; i++ {
			if i == 100 {
				close(writing)
			}
			if nc.Publish("s", payload) != nil {
				close(ended)
				return
			}
		}
	}()
	<-writing
	srv.Stop()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("a write waits for a server that was stopped")
	}
}
