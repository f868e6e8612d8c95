// Package source reads and changes a NATS account for the console's pages.
package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/console/internal/page"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/running"
	"github.com/jetpull/jetpull/internal/systems"
	"github.com/jetpull/jetpull/internal/wire"
	"github.com/jetpull/jetpull/partition"
)

// JetStream is a NATS account as a source of consumers and messages. The methods that consist of one request are those of its client.
type JetStream struct{ jetstream.JetStream }

// listed is a page of a list of the JetStream API. Missing contains the names of items that no server leads, or whose leader did not answer.
type listed struct {
	Error        *jetstream.APIError
	Total, Limit int
	Streams      []*jetstream.StreamInfo
	Consumers    []*jetstream.ConsumerInfo
	Missing      []string
}

// list reads all pages of a list. The listers of nats.go skip missing items, and return other items twice because they count the received ones.
func list(ctx context.Context, js jetstream.JetStream, subject string) (all listed, err error) {
	subject = wire.APIPrefix(js.Options().APIPrefix, js.Options().Domain) + subject
	known := map[string]bool{}
	for offset, total := 0, 1; offset < total; {
		m, err := js.Conn().RequestWithContext(ctx, subject, fmt.Appendf(nil, `{"offset":%d}`, offset))
		if errors.Is(err, nats.ErrNoResponders) {
			err = jetstream.ErrJetStreamNotEnabled
		}
		if err != nil {
			return all, err
		}
		var page listed
		if err := json.Unmarshal(m.Data, &page); err != nil {
			return all, err
		}
		if page.Error != nil {
			return all, page.Error
		}
		for _, one := range page.Streams {
			known[one.Config.Name] = true
		}
		for _, one := range page.Consumers {
			known[one.Name] = true
		}
		all.Streams, all.Consumers = append(all.Streams, page.Streams...), append(all.Consumers, page.Consumers...)
		all.Missing = append(all.Missing, page.Missing...)
		offset, total = offset+max(page.Limit, 1), page.Total
	}
	all.Missing = slices.DeleteFunc(all.Missing, func(name string) bool { return known[name] })
	return all, nil
}

// Streams implements [page.MessageSource]. A stream that no server leads has only a name, and a cluster without a leader.
func (j JetStream) Streams(ctx context.Context) ([]*jetstream.StreamInfo, error) {
	found, err := list(ctx, j.JetStream, "STREAM.LIST")
	if err != nil {
		return nil, inWords(fmt.Errorf("streams: %w", err))
	}
	for _, name := range found.Missing {
		found.Streams = append(found.Streams,
			&jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: name}, Cluster: &jetstream.ClusterInfo{}})
	}
	for _, info := range found.Streams {
		info.Config.Metadata = nil // no page shows it
	}
	return found.Streams, nil
}

// Consumers implements [page.ConsumerSource]. A consumer that no server leads has only its names, and a cluster without a leader.
func (j JetStream) Consumers(ctx context.Context) (all []*jetstream.ConsumerInfo, err error) {
	streams, err := j.Streams(ctx)
	if err != nil {
		return nil, err
	}
	for _, info := range streams {
		if led := info.Cluster == nil || info.Cluster.Leader != ""; led && info.State.Consumers == 0 { // without a leader, its state is unknown
			continue
		}
		found, err := list(ctx, j.JetStream, "CONSUMER.LIST."+info.Config.Name)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) { // it may have been deleted after it was listed
			return nil, inWords(fmt.Errorf("consumers of stream %s: %w", info.Config.Name, err))
		}
		for _, c := range found.Consumers {
			limit(c.Config.Metadata)
		}
		all = append(all, found.Consumers...)
		for _, name := range found.Missing {
			all = append(all, &jetstream.ConsumerInfo{Stream: info.Config.Name, Name: name, Cluster: &jetstream.ClusterInfo{}})
		}
	}
	return all, nil
}

// maxMetadata is the maximum size of a consumer's metadata that is kept, in bytes. Anybody who may create consumers can set up to 128 KiB.
const maxMetadata = 4 << 10

func limit(metadata map[string]string) {
	size := 0
	for key, value := range metadata {
		size += len(key) + len(value)
	}
	if size > maxMetadata {
		clear(metadata)
		metadata["not shown"] = fmt.Sprintf("%d bytes, which are more than %d", size, maxMetadata)
	}
}

// StoredAfter implements [page.ConsumerSource].
func (j JetStream) StoredAfter(ctx context.Context, c *jetstream.ConsumerInfo, sequence uint64) (time.Time, error) {
	return jsstream.StoredAfter(ctx, j.JetStream, c, sequence)
}

// Unpin implements [page.ConsumerSource].
func (j JetStream) Unpin(ctx context.Context, stream, consumer, group string) error {
	return jetpull.Unpin(ctx, j.JetStream, stream, consumer, group)
}

// Reset implements [page.ConsumerSource].
func (j JetStream) Reset(ctx context.Context, stream, consumer string, sequence uint64) error {
	if sequence == 0 {
		_, err := j.ResetConsumer(ctx, stream, consumer)
		return err
	}
	_, err := j.ResetConsumerToSequence(ctx, stream, consumer, sequence)
	return err
}

// workersAnswer is how long workers may take to answer. If there are workers, an open page waits for the whole time.
const workersAnswer = 500 * time.Millisecond

// Running implements [page.ConsumerSource].
func (j JetStream) Running(ctx context.Context, stream, consumer string) ([]running.List, error) {
	all, err := running.Ask[running.List](ctx, j.Conn(), running.ListSubject(stream, consumer), "", workersAnswer)
	return all, inWords(err)
}

// Cancel implements [page.ConsumerSource].
func (j JetStream) Cancel(ctx context.Context, stream, consumer string, sequence uint64) ([]running.Cancelled, error) {
	all, err := running.Ask[running.Cancelled](ctx, j.Conn(), running.CancelSubject(stream, consumer), strconv.FormatUint(sequence, 10),
		2*workersAnswer)
	return all, inWords(err)
}

// Stream implements [page.MessageSource].
func (j JetStream) Stream(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	if len(name) > wire.MaxName { // the server would close the connection
		return nil, jetstream.ErrStreamNotFound
	}
	stream, err := j.JetStream.Stream(ctx, name)
	if err != nil {
		return nil, inWords(err)
	}
	return stream.CachedInfo(), nil
}

// batchBytes limits the size of one answer, so that large payloads do not fill the memory.
const batchBytes = 16 << 20

// Messages implements [page.MessageSource]. If the stream allows direct get, a server answers one request with all messages. For other streams, and
// if a server has no more, since it may be a replica that lags behind, Messages asks the leader for one message after the other.
func (j JetStream) Messages(ctx context.Context, info *jetstream.StreamInfo, from uint64, subject string, n int) (
	all []*jetstream.RawStreamMsg, err error,
) {
	if info.Config.AllowDirect {
		var matching uint64
		if all, matching, err = j.direct(ctx, info, from, subject, n); err != nil || uint64(len(all)) < matching {
			return all, err
		}
		if len(all) > 0 {
			from = all[len(all)-1].Sequence + 1
		}
	}
	for len(all) < n {
		m, err := jsstream.Next(ctx, j.JetStream, info.Config.Name, from, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return all, err
		}
		all, from = append(all, m), m.Sequence+1
	}
	return all, nil
}

// direct reads up to n messages. matching is the number of messages from the sequence on, or 0 if there are none or the server does not report it.
func (j JetStream) direct(ctx context.Context, info *jetstream.StreamInfo, from uint64, subject string, n int) (all []*jetstream.RawStreamMsg,
	matching uint64, err error,
) {
	nc, options := j.Conn(), j.Options()
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	request, err := json.Marshal(map[string]any{"seq": max(from, 1), "next_by_subj": subject, "batch": n, "max_bytes": batchBytes})
	if err == nil {
		err = nc.PublishRequest(wire.APIPrefix(options.APIPrefix, options.Domain)+"DIRECT.GET."+info.Config.Name, inbox, request)
	}
	for err == nil {
		var m *nats.Msg
		if m, err = sub.NextMsgWithContext(ctx); err != nil {
			break
		}
		one, ok, failed := jsstream.Direct(m)
		status := m.Header.Get("Status")
		switch {
		case failed != nil:
			err = failed
		case ok:
			if all = append(all, one); len(all) == 1 {
				// The server reports how many messages match after each one, after the message's own headers.
				values := m.Header["Nats-Num-Pending"]
				if left, err := strconv.ParseUint(strings.Join(values[max(0, len(values)-1):], ""), 10, 64); err == nil {
					matching = left + 1
				}
			}
		case status == "204", status == "404":
			// The message ends the answer.
			return all, matching, nil
		default:
			err = fmt.Errorf("the server answered %s %s", status, m.Header.Get("Description"))
		}
	}
	return all, matching, fmt.Errorf("messages of stream %s: %w", info.Config.Name, err)
}

// Count implements [page.MessageSource].
func (j JetStream) Count(ctx context.Context, info *jetstream.StreamInfo, from uint64, subject string) (n uint64, err error) {
	subject = cmp.Or(subject, ">")
	if info.Config.AllowDirect {
		found, n, err := j.direct(ctx, info, from, subject, 1)
		if err == nil && n == 0 && len(found) > 0 {
			err = errors.New("the server does not count messages")
		}
		return n, err
	}
	if from <= info.State.FirstSeq { // the server has no other request that counts messages
		counts, err := j.Subjects(ctx, info.Config.Name, subject)
		for _, of := range counts {
			n += of
		}
		return n, err
	}
	return 0, errors.New("the stream does not allow direct get")
}

// Message implements [page.MessageSource]. Its caller has found the stream.
func (j JetStream) Message(ctx context.Context, name string, seq uint64) (*jetstream.RawStreamMsg, error) {
	return jsstream.Next(ctx, j.JetStream, name, seq, "")
}

// Inbox implements [page.MessageSource].
func (j JetStream) Inbox() string { return j.Conn().Opts.InboxPrefix }

// DeleteMessage implements [page.MessageSource].
func (j JetStream) DeleteMessage(ctx context.Context, name string, seq uint64) error {
	stream, err := j.JetStream.Stream(ctx, name)
	if err == nil {
		err = jsstream.Delete(ctx, j.JetStream, stream, seq)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	return err
}

// Subjects implements [page.MessageSource].
func (j JetStream) Subjects(ctx context.Context, name, subject string) (map[string]uint64, error) {
	stream, err := j.JetStream.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return nil, err
	}
	return info.State.Subjects, nil
}

// PartitionSets implements [page.PartitionSource].
func (j JetStream) PartitionSets(ctx context.Context) (all []page.PartitionSet, err error) {
	buckets := j.KeyValueStoreNames(ctx)
	for bucket := range buckets.Name() {
		name, ok := strings.CutPrefix(bucket, systems.PartitionBucket)
		if !ok {
			continue
		}
		s := page.PartitionSet{Name: name}
		set, err := partition.Load(ctx, j.JetStream, name)
		if s.Err = err; err == nil {
			s.Stream, s.Subject, s.TTL = set.Stream(), set.Config().Subject, set.Config().TTL
			s.Partitions, s.Err = set.Status(ctx)
		}
		all = append(all, s)
	}
	if err := buckets.Error(); err != nil {
		return nil, inWords(fmt.Errorf("buckets: %w", err))
	}
	return all, nil
}
