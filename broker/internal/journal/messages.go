package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
)

// messages stores, reads and prunes broadcasts and schedules.
type messages struct {
	*base
	cache *payloadCache
	inUse inUse
}

// Append stores a message under its ID. If the ID exists, it returns [domain.ErrDuplicateMessage].
func (s *messages) Append(ctx context.Context, m domain.Message) (domain.Message, error) {
	m.ReceivedAt = s.Index.Clock.Now()
	token := domain.SubjectToken(m.Channel)
	known := s.known()
	seq, err := s.commit(ctx, m, Config.messageSubject, time.Time{}, nats.Header{})
	if err != nil {
		return m, err
	}
	if seq <= known {
		return m, s.takeBack(ctx, seq)
	}
	s.noteSequence(seq)
	m.Seq = seq
	// The message may be cached before it is on disk, because every write about its jobs waits for the disk first.
	s.cache.put(m)
	s.Index.AddMessage(token, jobindex.Entry{Seq: seq, At: m.ReceivedAt.UnixNano(), Priority: int32(m.Priority)}, m.EventType)
	return m, s.messageWrites.DurableAt(ctx, seq)
}

// commit stores a message or a schedule with its envelope. A channel uses an ID once, for either of the two. The message of a schedule may already
// have been broadcast, even if an earlier attempt at this write stored the schedule and its answer was lost.
func (s *messages) commit(ctx context.Context, m domain.Message, subject func(c Config, channelToken, id string) string, at time.Time,
	header nats.Header,
) (uint64, error) {
	envelope, err := encodeEnvelope(m, at)
	if err != nil {
		return 0, err
	}
	token, id := domain.SubjectToken(m.Channel), domain.SubjectToken(m.ID)
	header[headerEnvelope] = []string{envelope}
	header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{s.cfg.eitherSubject(token, id)}
	seq, err := s.messageWrites.Commit(ctx, &nats.Msg{Subject: subject(s.cfg, token, id), Data: m.Payload, Header: header}, 0)
	if errors.Is(err, domain.ErrConflict) {
		err = s.onDisk(ctx, domain.ErrDuplicateMessage)
	}
	return seq, err
}

// onDisk returns err once everything that was written before is on disk. err depends on the stored data, and its caller will not repeat the request.
func (s *messages) onDisk(ctx context.Context, err error) error {
	return cmp.Or(s.messageWrites.DurableAt(ctx, 0), err)
}

// maxStored is the size of the largest message that a stream on disk accepts, whatever max_payload is.
const maxStored = 32 << 20

// MaxPayload returns the size of the largest payload of a message. It leaves the rest of the server's limit for the headers.
func (s *messages) MaxPayload() int {
	return min(int(s.nc.MaxPayload()), maxStored) - maxEnvelope - 8<<10
}

// catchUp limits how long a read waits for a message that another node has just stored, and for the jobs of the message.
const catchUp = 500 * time.Millisecond

// Message returns a message stored by any node. When it returns, the index has the message's jobs.
func (s *messages) Message(ctx context.Context, channel, id string) (domain.Message, error) {
	raw, err := s.Last(ctx, s.messageStream, s.cfg.messageSubject(domain.SubjectToken(channel), domain.SubjectToken(id)))
	if err != nil {
		return domain.Message{}, err
	}
	if raw.Sequence > s.messagesSeen.Reached() && s.cfg.Shared {
		s.awaitNews(ctx, raw.Sequence, catchUp) // another node has just stored it; the index gets its jobs from the stream
	}
	m, err := decodeMessage(raw)
	return m.Message, err
}

// InOrder returns messages in the order of seqs. It reads those that are not in the cache, several at a time.
func (s *messages) InOrder(ctx context.Context, seqs []uint64) (list []domain.Message, err error) {
	list = make([]domain.Message, len(seqs))
	var missing []int
	for i, seq := range seqs {
		if m, ok := s.cache.get(seq); ok {
			list[i] = m
		} else {
			missing = append(missing, i)
		}
	}
	var mu sync.Mutex
	var failed error
	gone := map[uint64]string{}
	_ = atOnce(missing, func(i int) error {
		m, err := s.messageAt(ctx, seqs[i])
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			list[i] = m
		case errors.Is(err, domain.ErrNotFound):
			if token, _ := s.Index.ChannelOf(seqs[i]); token != "" {
				gone[seqs[i]] = token
			}
		case errors.Is(err, errEnvelope):
			// Otherwise its jobs would stay at the heads of their queues.
			s.log.Error("a message that cannot be decoded is ignored until the next start", "sequence", seqs[i], "error", err)
			token, _ := s.Index.ChannelOf(seqs[i])
			s.Index.RemoveMessages(token, []uint64{seqs[i]})
		default:
			failed = err
		}
		return nil
	})
	list = slices.DeleteFunc(list, func(m domain.Message) bool { return m.Seq == 0 })
	return list, errors.Join(failed, s.forget(ctx, gone))
}

func (s *messages) messageAt(ctx context.Context, seq uint64) (domain.Message, error) {
	raw, err := s.reader.At(ctx, s.messageStream, seq)
	if err != nil {
		return domain.Message{}, fmt.Errorf("read message %d: %w", seq, err)
	}
	m, err := decodeMessage(raw)
	if err == nil {
		s.cache.put(m.Message)
	}
	return m.Message, err
}

// The headers of a stored message. The envelope is one of them. It begins with the priority and the time, which every node reads for every message.
// Nodes read the rest only together with the payload.
const (
	headerEnvelope  = "Jetpull-Message"
	headerSchedule  = "Nats-Schedule"
	headerTarget    = "Nats-Schedule-Target"
	headerScheduler = "Nats-Scheduler"

	schedulePrefix = "@at " // before the time in a schedule
)

// maxEnvelope limits the envelope, so that a message's headers stay below the server's limit of 64 KiB.
const maxEnvelope = 48 << 10

// envelope is the part of a message's header that nodes read only with its payload.
type envelope struct {
	ID          string            `json:"id"`
	Channel     string            `json:"ch"`
	Producer    string            `json:"by"`
	ContentType string            `json:"ct"`
	Headers     map[string]string `json:"h,omitempty"`
	Trace       string            `json:"tp,omitempty"`
	For         int64             `json:"at,omitempty"`
}

var errEnvelope = errors.New("its header " + headerEnvelope + " is not an envelope")

func encodeEnvelope(m domain.Message, scheduledFor time.Time) (string, error) {
	body, err := json.Marshal(envelope{
		ID: m.ID, Channel: m.Channel, Producer: m.Producer, ContentType: m.ContentType,
		Headers: m.Headers, Trace: m.Trace, For: jobindex.UnixNano(scheduledFor),
	})
	if err != nil {
		return "", fmt.Errorf("encode the header of message %q: %w", m.ID, err)
	}
	if len(body) > maxEnvelope {
		return "", fmt.Errorf("%w: its ID and metadata headers take %d bytes, at most %d are allowed", domain.ErrTooLarge, len(body), maxEnvelope)
	}
	front := strconv.Itoa(m.Priority) + " " + strconv.FormatInt(jobindex.UnixNano(m.ReceivedAt), 10) + " "
	if m.EventType != "" {
		front += m.EventType + " "
	}
	return front + string(body), nil
}

// summary is the beginning of an envelope, which every node reads for every message.
type summary struct {
	priority   int
	receivedAt int64
	eventType  string
	body       string // the rest, undecoded
}

func decodeSummary(header string) (s summary, err error) {
	first, rest, ok1 := strings.Cut(header, " ")
	second, rest, ok2 := strings.Cut(rest, " ")
	var err1, err2 error
	s.priority, err1 = strconv.Atoi(first)
	s.receivedAt, err2 = strconv.ParseInt(second, 10, 64)
	if !ok1 || !ok2 || err1 != nil || err2 != nil {
		return summary{}, fmt.Errorf("%w: %q", errEnvelope, header)
	}
	if s.body = rest; !strings.HasPrefix(rest, "{") {
		s.eventType, s.body, _ = strings.Cut(rest, " ")
	}
	return s, nil
}

// decodeMessage decodes a message and its schedule, if any. If the server's scheduler published the message, its time of receipt is when the server
// stored it. The channel and the ID in the envelope must match the subject, because the index and the permissions of the NATS server depend only on
// the subject.
func decodeMessage(raw *jetstream.RawStreamMsg) (m domain.Scheduled, err error) {
	s, err := decodeSummary(raw.Header.Get(headerEnvelope))
	if err != nil {
		return m, fmt.Errorf("message %d: %w", raw.Sequence, err)
	}
	var e envelope
	if err := json.Unmarshal([]byte(s.body), &e); err != nil {
		return m, fmt.Errorf("message %d: %w: %w", raw.Sequence, errEnvelope, err)
	}
	if !strings.HasSuffix(raw.Subject, "."+domain.SubjectToken(e.Channel)+"."+domain.SubjectToken(e.ID)) {
		return m, fmt.Errorf("message %d: %w of its subject %s: it names message %q of channel %q", raw.Sequence, errEnvelope, raw.Subject, e.ID, e.Channel)
	}
	m.Message = domain.Message{
		Seq: raw.Sequence, ID: e.ID, Channel: e.Channel, Producer: e.Producer, ContentType: e.ContentType,
		EventType: s.eventType, Priority: s.priority, Headers: e.Headers, Payload: raw.Data, Trace: e.Trace,
		ReceivedAt: jobindex.FromUnixNano(s.receivedAt),
	}
	m.For = jobindex.FromUnixNano(e.For)
	if raw.Header.Get(headerScheduler) != "" {
		m.DispatchedAt = raw.Time.UTC()
		m.ReceivedAt = m.DispatchedAt
	}
	return m, nil
}

// seeMessage adds a stored message whose headers alone were read.
func (s *messages) seeMessage(msg *nats.Msg, meta *nats.MsgMetadata) {
	kind, token, ok := s.parseMessageSubject(msg.Subject)
	front, err := decodeSummary(msg.Header.Get(headerEnvelope))
	if !ok || err != nil {
		s.log.Warn("message that is not the broker's ignored", "subject", msg.Subject, "sequence", meta.Sequence.Stream, "error", err)
		return
	}
	seq := meta.Sequence.Stream
	if kind == "s" {
		at, err := time.Parse(time.RFC3339, strings.TrimPrefix(msg.Header.Get(headerSchedule), schedulePrefix))
		if err != nil {
			s.log.Warn("schedule cannot be read and is ignored", "subject", msg.Subject, "error", err)
			return
		}
		s.Index.AddSchedule(token, msg.Subject, seq, at)
		return
	}
	at := front.receivedAt
	if schedule := msg.Header.Get(headerScheduler); schedule != "" {
		at = meta.Timestamp.UnixNano()
		s.Index.Fired(token, schedule, seq)
	}
	s.Index.AddMessage(token, jobindex.Entry{Seq: seq, At: at, Priority: int32(front.priority)}, front.eventType)
}

// parseMessageSubject splits <name>.<kind>.<channel>.<id>.
func (s *base) parseMessageSubject(subject string) (kind, channelToken string, ok bool) {
	rest, ok1 := strings.CutPrefix(subject, s.cfg.Name+".")
	kind, rest, ok2 := strings.Cut(rest, ".")
	channelToken, _, ok3 := strings.Cut(rest, ".")
	return kind, channelToken, ok1 && ok2 && ok3
}

// payloadCache holds the latest messages that were stored or read on this node, up to a number of bytes. Most messages are read soon after they are
// stored, and by several consumers.
type payloadCache struct {
	mu    sync.Mutex
	size  int
	items map[uint64]domain.Message
	order []uint64 // sequences in the order of insertion; some are no longer cached
}

func newPayloadCache() *payloadCache { return &payloadCache{items: map[uint64]domain.Message{}} }

// cacheBytes limits the payloads in the cache.
const cacheBytes = 16 << 20

// messageOverhead is the approximate memory for a message without its payload, in bytes.
const messageOverhead = 768

func (c *payloadCache) put(m domain.Message) {
	if len(m.Payload) > cacheBytes/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.items[m.Seq]; known {
		return
	}
	c.items[m.Seq] = m
	c.order = append(c.order, m.Seq)
	c.size += len(m.Payload) + messageOverhead
	for c.size > cacheBytes || len(c.order) > 2*len(c.items)+1000 {
		c.dropLocked(c.order[0])
		c.order = c.order[1:]
	}
}

func (c *payloadCache) dropLocked(seq uint64) {
	if m, ok := c.items[seq]; ok {
		delete(c.items, seq)
		c.size -= len(m.Payload) + messageOverhead
	}
}

func (c *payloadCache) get(seq uint64) (domain.Message, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.items[seq]
	return m, ok
}

func (c *payloadCache) remove(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(seq)
}
