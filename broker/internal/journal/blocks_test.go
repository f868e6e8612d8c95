package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/natstest/power"
)

// storeOnly stores a message without a sync, as the server does with a scheduled one, and waits until the index has it.
func storeOnly(t *testing.T, s *Store, id string, payload int) (seq uint64) {
	t.Helper()
	header, err := encodeEnvelope(domain.Message{ID: id, Channel: "ch", ReceivedAt: time.Now()}, time.Time{})
	require.NoError(t, err)
	ack, err := s.js.PublishMsg(t.Context(), &nats.Msg{
		Subject: s.cfg.messageSubject(domain.SubjectToken("ch"), domain.SubjectToken(id)), Header: nats.Header{headerEnvelope: {header}},
		Data: make([]byte, payload),
	})
	require.NoError(t, err)
	require.NoError(t, s.messagesSeen.Wait(t.Context(), ack.Sequence))
	return ack.Sequence
}

// fillBlock stores messages until the block with a number begins, and returns the sequence of the only message in it.
func fillBlock(t *testing.T, s *Store, dir string, number int) (seq uint64) {
	t.Helper()
	path := filepath.Join(power.Blocks(dir, s.cfg.messages()), fmt.Sprint(number, ".blk"))
	for i := range 100 {
		seq := storeOnly(t, s, fmt.Sprintf("fill-%d-%d", number, i), 900_000)
		if _, err := os.Stat(path); err == nil {
			return seq
		}
	}
	t.Fatalf("%s does not begin", path)
	return 0
}

// The server skips block numbers: a block that becomes empty before the folder is listed is never seen. The blocks after it are
// synced all the same.
func TestBlockNumberIsSkipped(t *testing.T) {
	dir := t.TempDir()
	disk := &power.Disk{}
	s, stop := runOn(t, dir, Config{}, disk)
	defer stop()
	makeConsumer(t, s, "ch", "k", domain.Pull)
	blocks := power.Blocks(dir, s.cfg.messages())
	appendMessage(t, s, "ch", "before", 0)

	only := fillBlock(t, s, dir, 2)
	require.NoError(t, s.messageStream.DeleteMsg(t.Context(), only))
	require.FileExists(t, filepath.Join(blocks, "1.blk"))
	require.NoFileExists(t, filepath.Join(blocks, "2.blk"))
	require.FileExists(t, filepath.Join(blocks, "3.blk"), "the server goes on elsewhere: this test shows nothing")

	appendMessage(t, s, "ch", "after", 0)
	require.Positive(t, disk.Size(filepath.Join(blocks, "3.blk")), "the block that has the message was not synced")
	after := t.TempDir()
	disk.Cut(t, dir, after)
	again, stopAgain := runOn(t, after, Config{})
	defer stopAgain()
	for _, id := range []string{"before", "after"} {
		_, err := again.Messages.Message(t.Context(), "ch", id)
		require.NoError(t, err, "message %s was answered and is gone", id)
	}
}
