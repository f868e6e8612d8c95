package jsstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/jetpull/jetpull/broker"
)

// The file of a snapshot: a magic number with the version, the states of the three
// streams, the channels with their messages and schedules, the records, and a
// checksum of all that. Numbers have fixed sizes, texts and lists their length in
// front.
const (
	snapshotMagic = 0x6a706978_00000003
	// maxSnapshotText bounds a text, against a file that is none of ours.
	maxSnapshotText = 1 << 16
)

var (
	errSnapshot      = errors.New("the snapshot of the index is damaged")
	errSnapshotState = errors.New("the streams have changed since the snapshot of the index")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snapshotWriter keeps the first error, so that only the end has to be checked.
type snapshotWriter struct {
	to  *bufio.Writer
	sum hash.Hash32
	buf [8]byte
	err error
}

func (w *snapshotWriter) write(b []byte) {
	if w.err == nil {
		_, w.err = w.to.Write(b)
		w.sum.Write(b)
	}
}

func (w *snapshotWriter) number(n uint64) {
	binary.BigEndian.PutUint64(w.buf[:], n)
	w.write(w.buf[:])
}

func (w *snapshotWriter) text(s string) {
	w.number(uint64(len(s)))
	w.write([]byte(s))
}

func (w *snapshotWriter) state(s streamState) {
	for _, n := range []uint64{uint64(s.created), uint64(s.lastTime), s.first, s.last, s.messages, s.absent} {
		w.number(n)
	}
}

// writeSnapshot writes the index as it is with the streams in the given state.
func writeSnapshot(to io.Writer, state storeState, x *index) error {
	w := &snapshotWriter{to: bufio.NewWriterSize(to, 1<<16), sum: crc32.New(castagnoli)}
	x.mu.RLock()
	defer x.mu.RUnlock()
	w.number(snapshotMagic)
	for _, of := range state {
		w.state(of)
	}
	w.number(uint64(len(x.channels)))
	for token, c := range x.channels {
		w.channel(token, c)
	}
	w.records(x)
	w.number(uint64(w.sum.Sum32()))
	if w.err != nil {
		return w.err
	}
	return w.to.Flush()
}

func (w *snapshotWriter) channel(token string, c *channelIndex) {
	w.text(token)
	w.number(uint64(c.messages.len()))
	c.messages.ascend(nil, func(e entry) bool {
		w.number(e.seq)
		w.number(uint64(e.at))
		w.number(uint64(e.priority))
		w.text(c.kinds.name(e.kind))
		return true
	})
	// What was broadcast and whose message is gone would be listed for ever.
	listed := make([]*scheduledEntry, 0, len(c.scheduled))
	for _, e := range c.scheduled {
		if _, kept := c.find(e.message); kept || e.message == 0 {
			listed = append(listed, e)
		}
	}
	w.number(uint64(len(listed)))
	for _, e := range listed {
		w.number(e.seq)
		w.number(uint64(e.at))
		w.number(uint64(e.dispatchedAt))
		w.number(e.message)
		w.text(e.id)
		w.text(e.subject)
	}
}

// records writes those of the consumers that there are. What is left of deleted
// ones is nobody's: a number is never given to another consumer.
func (w *snapshotWriter) records(x *index) {
	count := 0
	for _, k := range x.consumers {
		count += len(k.records) + k.settled.bySeq.len()
	}
	w.number(uint64(count))
	for _, k := range x.consumers {
		for _, j := range k.records {
			w.record(j)
		}
		k.settled.bySeq.ascend(nil, func(e settledJob) bool {
			w.record(e.job(k.consumer.Number))
			return true
		})
	}
}

func (w *snapshotWriter) record(j broker.Job) {
	if w.err != nil {
		return
	}
	w.number(j.ID.Seq)
	w.number(uint64(j.ID.Consumer))
	w.number(j.Revision)
	w.text(string(encodeRecord(j)))
}

// snapshotReader keeps the first error and reads nothing after it.
type snapshotReader struct {
	from *bufio.Reader
	sum  hash.Hash32
	buf  [8]byte
	err  error
}

func (r *snapshotReader) read(b []byte) {
	if r.err == nil {
		if _, err := io.ReadFull(r.from, b); err != nil {
			r.err = fmt.Errorf("%w: %w", errSnapshot, err)
			return
		}
		r.sum.Write(b)
	}
}

func (r *snapshotReader) number() uint64 {
	r.read(r.buf[:])
	if r.err != nil {
		return 0
	}
	return binary.BigEndian.Uint64(r.buf[:])
}

func (r *snapshotReader) text() string {
	n := r.number()
	if n > maxSnapshotText {
		r.fail(fmt.Errorf("%w: a text of %d bytes", errSnapshot, n))
		return ""
	}
	b := make([]byte, n)
	r.read(b)
	return string(b)
}

func (r *snapshotReader) state() streamState {
	var n [6]uint64
	for i := range n {
		n[i] = r.number()
	}
	return streamState{int64(n[0]), int64(n[1]), n[2], n[3], n[4], n[5]}
}

func (r *snapshotReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// readList reads a list. Memory for it is taken as the items come: its length may be
// anything until the checksum is read.
func readList[T any](r *snapshotReader, item func() T) []T {
	var items []T
	for n := r.number(); n > 0 && r.err == nil; n-- {
		items = append(items, item())
	}
	return items
}

// snapshot is what was read from a file.
type snapshot struct {
	channels []channelSnapshot
	records  []broker.Job
}

type channelSnapshot struct {
	token     string
	messages  []messageSnapshot
	scheduled []scheduledEntry
}

// messageSnapshot is a message with its event type.
type messageSnapshot struct {
	entry
	eventType string
}

// readSnapshot reads a snapshot that is of the given state.
func readSnapshot(from io.Reader, state storeState) (*snapshot, error) {
	r := &snapshotReader{from: bufio.NewReaderSize(from, 1<<16), sum: crc32.New(castagnoli)}
	if magic := r.number(); r.err == nil && magic != snapshotMagic {
		return nil, fmt.Errorf("%w, or of another version: it begins with %x, not %x", errSnapshot, magic, uint64(snapshotMagic))
	}
	if of := (storeState{r.state(), r.state(), r.state()}); r.err == nil && of != state {
		return nil, errSnapshotState
	}
	s := &snapshot{channels: readList(r, r.channel), records: readList(r, r.record)}
	want := uint64(r.sum.Sum32())
	if sum := r.number(); r.err == nil && sum != want {
		return nil, fmt.Errorf("%w: its checksum is %x, not %x", errSnapshot, sum, want)
	}
	if r.err != nil {
		return nil, r.err
	}
	return s, nil
}

func (r *snapshotReader) channel() channelSnapshot {
	return channelSnapshot{token: r.text(), messages: readList(r, r.message), scheduled: readList(r, r.scheduled)}
}

func (r *snapshotReader) message() messageSnapshot {
	return messageSnapshot{entry{seq: r.number(), at: int64(r.number()), priority: int32(r.number())}, r.text()}
}

func (r *snapshotReader) scheduled() scheduledEntry {
	return scheduledEntry{
		seq: r.number(), at: int64(r.number()), dispatchedAt: int64(r.number()), message: r.number(),
		id: r.text(), subject: r.text(),
	}
}

func (r *snapshotReader) record() broker.Job {
	id := broker.JobID{Seq: r.number(), Consumer: uint32(r.number())}
	revision := r.number()
	record := r.text()
	if r.err != nil {
		return broker.Job{}
	}
	j, err := decodeRecord(id, revision, []byte(record))
	if err != nil {
		r.fail(fmt.Errorf("%w: %w", errSnapshot, err))
	}
	return j
}

// into puts a snapshot into an index that has consumers and nothing else.
func (s *snapshot) into(x *index) {
	for _, c := range s.channels {
		for _, e := range c.messages {
			x.addMessage(c.token, e.entry, e.eventType)
		}
		for _, e := range c.scheduled {
			x.addScheduled(c.token, e.subject, e)
		}
	}
	for _, j := range s.records {
		x.putRecord(j)
	}
	x.recent = recent{} // of what is settled the file has a part only
}
