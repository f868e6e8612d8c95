package store

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/relay/internal/machine"
)

// An opened store has the complete list, however long it is.
func TestOpenedStoreHasTheCompleteList(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 20_000
	}
	srv, err := natsembed.Start(t.Context(), natsembed.Options{Port: natsembed.NoPort, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(srv.Stop)
	open := func() *Store {
		nc, err := srv.Connect()
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		s, err := Open(t.Context(), nc, Config{Name: "relay", Replicas: 1, Embedded: true, Tombstone: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		return s
	}
	s := open()
	const writers = 64
	var running sync.WaitGroup
	for first := range writers {
		running.Go(func() {
			for i := first; i < n; i += writers {
				failure := machine.Failure{Stage: machine.ToReceiver, Reason: machine.Exhausted, Time: time.Now()}
				e := Entry{Payload: make([]byte, 100), Versioned: Versioned{Revision: uint64(i + 1), Record: machine.Record{
					Source: "a", ID: strconv.Itoa(i), Receiver: "ci", Status: machine.Failed, EndedAt: time.Now(), Failure: &failure,
				}}}
				if err := s.PutFailed(context.Background(), &e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	s = open()
	items, err := s.ListFailed(t.Context(), Filter{}, 0, 0)
	require.NoError(t, err)
	require.Equal(t, n, len(items))

	// The last message of the stream is removed, as if by its age. The reader does not wait for it.
	require.NoError(t, s.failed.DeleteMsg(t.Context(), items[0].Seq))
	items, err = open().ListFailed(t.Context(), Filter{}, 0, 0)
	require.NoError(t, err)
	require.Equal(t, n-1, len(items))
}
