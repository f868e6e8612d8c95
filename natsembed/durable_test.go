package natsembed_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest/power"
	"github.com/jetpull/jetpull/natsembed"
)

// durable starts a server on a disk, and creates a stream.
func durable(t *testing.T, dir string, d *power.Disk) (*natsembed.Server, jetstream.JetStream) {
	t.Helper()
	srv := start(t, natsembed.Options{Dir: dir, Sync: natsembed.SyncEvery(time.Hour), Fsync: d.Fsync, Port: natsembed.NoPort})
	t.Cleanup(srv.Stop)
	nc, err := srv.Connect()
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{"s.>"}})
	require.NoError(t, err)
	return srv, js
}

// storedAt returns the subjects of a store's messages.
func storedAt(t *testing.T, dir string) map[string]bool {
	t.Helper()
	srv, js := durable(t, dir, &power.Disk{})
	defer srv.Stop()
	stream, err := js.Stream(t.Context(), "s")
	require.NoError(t, err)
	subjects := map[string]bool{}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	require.NoError(t, err)
	for subject := range info.State.Subjects {
		subjects[subject] = true
	}
	return subjects
}

// lossOfPower publishes 10,000 messages in 64 goroutines, cuts the power 20 times meanwhile, and returns how many published messages were
// lost in all.
func lossOfPower(t *testing.T, d *power.Disk) (lost int) {
	t.Helper()
	dir := t.TempDir()
	srv, js := durable(t, dir, d)
	messages := int64(10_000)
	if testing.Short() {
		messages = 1000
	}
	var mu sync.Mutex
	published := map[string]bool{}
	var next atomic.Int64
	var publishers sync.WaitGroup
	for range 64 {
		publishers.Go(func() {
			for n := next.Add(1); n <= messages; n = next.Add(1) {
				subject := fmt.Sprint("s.", n)
				if _, err := srv.Publish(t.Context(), js, &nats.Msg{Subject: subject, Data: make([]byte, 2000)}); err != nil {
					t.Errorf("publish: %v", err)
					return
				}
				mu.Lock()
				published[subject] = true
				mu.Unlock()
			}
		})
	}
	const cuts = 20
	for cut := range int64(cuts) {
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return int64(len(published)) >= messages*(cut+1)/cuts
		}, 2*time.Minute, time.Millisecond)
		mu.Lock()
		before := make([]string, 0, len(published))
		for subject := range published {
			before = append(before, subject)
		}
		mu.Unlock()
		after := t.TempDir()
		d.Cut(t, dir, after)
		left := storedAt(t, after)
		for _, subject := range before {
			if !left[subject] {
				lost++
			}
		}
	}
	publishers.Wait()
	return lost
}

// A loss of power takes no message whose Publish has returned.
func TestLossOfPower(t *testing.T) {
	require.Zero(t, lossOfPower(t, &power.Disk{}))
}

// The test of a loss of power finds omitted syncs. The next sync covers the messages of an omitted one, so four in a row are omitted: then a cut
// falls among them, however many messages a sync has.
func TestLossOfPowerFindsASyncThatIsLeftOut(t *testing.T) {
	var syncs atomic.Int64
	d := &power.Disk{Skip: func(string) bool { return syncs.Add(1)/4%2 == 1 }}
	require.Positive(t, lossOfPower(t, d))
}

// Deletes and purges survive a loss of power, and so does what was stored after them.
func TestDeletesAndPurgesAreDurable(t *testing.T) {
	dir := t.TempDir()
	d := &power.Disk{}
	srv, js := durable(t, dir, d)
	publish := func(subject string) uint64 {
		ack, err := srv.Publish(t.Context(), js, &nats.Msg{Subject: subject, Data: make([]byte, 900_000)})
		require.NoError(t, err)
		return ack.Sequence
	}
	cut := func() map[string]bool {
		after := t.TempDir()
		d.Cut(t, dir, after)
		return storedAt(t, after)
	}
	for i := range 20 { // three blocks
		publish(fmt.Sprint("s.", i))
	}
	stream, err := js.Stream(t.Context(), "s")
	require.NoError(t, err)
	require.NoError(t, stream.DeleteMsg(t.Context(), publish("s.deleted")))
	require.NoError(t, srv.Durable(t.Context(), "s"))
	left := cut()
	require.Len(t, left, 20)
	require.NotContains(t, left, "s.deleted")

	require.NoError(t, stream.Purge(t.Context()))
	publish("s.later")
	require.Equal(t, map[string]bool{"s.later": true}, cut())

	require.NoError(t, js.DeleteStream(t.Context(), "s"))
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{"s.>"}})
	require.NoError(t, err)
	publish("s.again")
	require.Equal(t, map[string]bool{"s.again": true}, cut())
}

// After a failed sync nothing is confirmed, on any stream, even if the disk works again.
func TestAFailedSyncIsRemembered(t *testing.T) {
	d := &power.Disk{}
	srv, js := durable(t, t.TempDir(), d)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "other", Subjects: []string{"other"}})
	require.NoError(t, err)
	require.NoError(t, srv.Durable(t.Context(), "s"))
	require.NoError(t, srv.SyncFailure())
	d.Fail(srv.Dir())
	ack, err := srv.Publish(t.Context(), js, &nats.Msg{Subject: "s.1"})
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, uint64(1), ack.Sequence)
	d.Recover()
	for _, stream := range []string{"s", "other"} {
		require.ErrorContains(t, srv.Durable(t.Context(), stream), "restart the process")
	}
	require.ErrorIs(t, srv.SyncFailure(), syscall.EIO)
	require.Equal(t, 1, d.Failed())
}

func TestDurableRefuses(t *testing.T) {
	srv, _ := durable(t, t.TempDir(), &power.Disk{})
	for _, c := range []struct{ stream, want string }{
		{"missing", "it does not exist, or its storage is not a file"},
		{"", "is not the name of a stream"},
		{"../s", "is not the name of a stream"},
	} {
		require.ErrorContains(t, srv.Durable(t.Context(), c.stream), c.want)
	}
	require.ErrorContains(t, new(natsembed.Server).Durable(t.Context(), "s"), "was not started")
	require.NoError(t, srv.SyncFailure(), "nothing is wrong with the disk")
	_, err := natsembed.Start(t.Context(), natsembed.Options{Sync: natsembed.SyncEvery(-time.Second)})
	require.ErrorContains(t, err, "is not positive")
}

func TestParseSync(t *testing.T) {
	for text, want := range map[string]natsembed.Sync{
		"always": natsembed.SyncGroup, "each": natsembed.SyncEach, "10ms": natsembed.SyncEvery(10 * time.Millisecond), "2m": natsembed.SyncEvery(2 * time.Minute),
	} {
		sync, err := natsembed.ParseSync(text)
		require.NoError(t, err)
		require.Equal(t, want, sync, text)
	}
	for _, text := range []string{"", "never", "0", "-1s", "9ms", "Always"} {
		_, err := natsembed.ParseSync(text)
		require.ErrorContains(t, err, "is neither always nor each nor a duration of at least 10ms", text)
	}
}

// A server that syncs each write has nothing to wait for.
func TestDurableWithSyncEach(t *testing.T) {
	d := &power.Disk{}
	srv := start(t, natsembed.Options{Sync: natsembed.SyncEach, Fsync: d.Fsync, Port: natsembed.NoPort})
	defer srv.Stop()
	require.NoError(t, srv.Durable(t.Context(), "s"))
	files, folders := d.Syncs()
	require.Zero(t, files+folders)
}
