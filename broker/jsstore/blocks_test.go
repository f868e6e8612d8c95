package jsstore

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
)

// storeOnly stores a message that nobody syncs, as the server does with one that
// was scheduled, and waits until it is known.
func storeOnly(t *testing.T, s *Store, id string, payload int) (seq uint64) {
	t.Helper()
	header, err := encodeEnvelope(broker.Message{ID: id, Channel: "ch", ReceivedAt: time.Now()}, time.Time{})
	require.NoError(t, err)
	ack, err := s.js.PublishMsg(t.Context(), &nats.Msg{
		Subject: s.cfg.messageSubject(encodeToken("ch"), encodeToken(id)), Header: nats.Header{headerEnvelope: {header}}, Data: make([]byte, payload),
	})
	require.NoError(t, err)
	require.NoError(t, s.messagesSeen.wait(t.Context(), ack.Sequence))
	return ack.Sequence
}

// fillBlock stores messages until the block with a number begins, and returns
// the sequence of the only one that is in it.
func fillBlock(t *testing.T, s *Store, dir string, number int) (seq uint64) {
	t.Helper()
	path := filepath.Join(blocksOf(dir, s.cfg.messages()), fmt.Sprint(number, ".blk"))
	for i := range 100 {
		seq := storeOnly(t, s, fmt.Sprintf("fill-%d-%d", number, i), 900_000)
		if _, err := os.Stat(path); err == nil {
			return seq
		}
	}
	t.Fatalf("%s does not begin", path)
	return 0
}

// The server leaves numbers out: a block that becomes empty before anybody has
// looked is never seen. What comes after it is synced all the same.
func TestBlockNumberIsSkipped(t *testing.T) {
	dir := t.TempDir()
	sizes := &syncedSizes{sizes: map[string]int64{}}
	s, stop := runOn(t, dir, Config{SyncDir: dir, OnSync: sizes.note})
	defer stop()
	makeConsumer(t, s, "ch", "k", broker.Pull)
	blocks := blocksOf(dir, s.cfg.messages())
	appendMessage(t, s, "ch", "before", 0)

	only := fillBlock(t, s, dir, 2)
	require.NoError(t, s.messageStream.DeleteMsg(t.Context(), only))
	require.FileExists(t, filepath.Join(blocks, "1.blk"))
	require.NoFileExists(t, filepath.Join(blocks, "2.blk"))
	require.FileExists(t, filepath.Join(blocks, "3.blk"), "the server goes on elsewhere: this test shows nothing")

	appendMessage(t, s, "ch", "after", 0)
	sizes.mu.Lock()
	synced := sizes.sizes[filepath.Join(blocks, "3.blk")]
	sizes.mu.Unlock()
	require.Positive(t, synced, "the block that has the message was not synced")
	after := t.TempDir()
	sizes.cut(t, dir, after)
	again, stopAgain := runOn(t, after, Config{})
	defer stopAgain()
	for _, id := range []string{"before", "after"} {
		_, err := again.Message(t.Context(), "ch", id)
		require.NoError(t, err, "message %s was answered and is gone", id)
	}
}

// Blocks that are removed between two syncs, or while one goes on, are no
// failure.
func TestRemovedBlocksAreNotMissed(t *testing.T) {
	folder := t.TempDir()
	var synced []string
	remove := ""
	d := disk{note: func(path string, _ int64) {
		synced = append(synced, filepath.Base(path))
		if remove != "" {
			require.NoError(t, os.Remove(filepath.Join(folder, remove)))
			remove = ""
		}
	}}
	g := newGroupSync("", "s", d, slog.New(slog.DiscardHandler))
	g.blocks.dir = folder
	write := func(names ...string) {
		for _, name := range names {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte("x"), 0o600))
		}
	}
	wantSynced := func(names ...string) {
		t.Helper()
		synced = nil
		require.NoError(t, g.wait(t.Context()))
		require.Equal(t, names, synced)
	}
	write("8.blk", "9.blk", "10.blk", "index.db", "7.new")
	wantSynced("8.blk", "9.blk", "10.blk")
	wantSynced("10.blk")
	write("12.blk", "15.blk")
	wantSynced("10.blk", "12.blk", "15.blk")
	require.NoError(t, os.Remove(filepath.Join(folder, "15.blk")))
	write("17.blk")
	wantSynced("17.blk")
	write("18.blk", "19.blk")
	remove = "18.blk"
	wantSynced("17.blk", "19.blk")
}

// A folder is listed again while a change could hide behind its time, and then
// only when it changes.
func TestFolderIsListedWhenItMayHaveChanged(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := blockFolder{dir: folder}
		at := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
		// write adds a file so that the folder's time does not tell.
		write := func(name string) {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
			require.NoError(t, os.Chtimes(folder, at, at))
		}
		want := func(numbers ...int) {
			t.Helper()
			got, err := b.look()
			require.NoError(t, err)
			require.Equal(t, numbers, got)
		}
		write("1.blk")
		want(1)
		write("2.blk")
		want(1, 2)
		time.Sleep(granularity)
		write("3.blk")
		want(1, 2, 3)
		time.Sleep(time.Nanosecond)
		want(1, 2, 3)
		write("4.blk") // no file system does that so late
		want(1, 2, 3)
		at = at.Add(time.Nanosecond)
		write("5.blk")
		want(1, 2, 3, 4, 5)
		write("6.blk")
		want(1, 2, 3, 4, 5, 6)
	})
}
