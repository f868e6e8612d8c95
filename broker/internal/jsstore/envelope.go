package jsstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
)

// The headers of a stored message. One of ours carries what the broker knows
// about it: priority and time, which every node reads of every message, in
// front of the rest, which is only read with the payload.
const (
	headerEnvelope  = "Jetpull-Message"
	headerSchedule  = "Nats-Schedule"
	headerTarget    = "Nats-Schedule-Target"
	headerScheduler = "Nats-Scheduler"
)

// maxEnvelope keeps a message's headers under the server's limit of 64 KiB.
const maxEnvelope = 48 << 10

// envelope is the part of a message's header that is only read with its payload.
type envelope struct {
	ID          string            `json:"id"`
	Channel     string            `json:"ch"`
	Producer    string            `json:"by"`
	ContentType string            `json:"ct"`
	Headers     map[string]string `json:"h,omitempty"`
	Trace       string            `json:"tp,omitempty"`
	For         int64             `json:"at,omitempty"`
}

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

// summary is the front of an envelope, which every node reads of every message.
type summary struct {
	priority   int
	receivedAt int64
	eventType  string
	body       string // the rest, as it is
}

// decodeSummary reads the front of an envelope.
func decodeSummary(header string) (s summary, err error) {
	first, rest, ok1 := strings.Cut(header, " ")
	second, rest, ok2 := strings.Cut(rest, " ")
	var err1, err2 error
	s.priority, err1 = strconv.Atoi(first)
	s.receivedAt, err2 = strconv.ParseInt(second, 10, 64)
	if !ok1 || !ok2 || err1 != nil || err2 != nil {
		return summary{}, fmt.Errorf("header %s: %q is not an envelope", headerEnvelope, header)
	}
	if s.body = rest; !strings.HasPrefix(rest, "{") {
		s.eventType, s.body, _ = strings.Cut(rest, " ")
	}
	return s, nil
}

// decodeMessage rebuilds a message. The time it was stored is its time of
// receipt if the server's scheduler published it.
func decodeMessage(seq uint64, stored time.Time, hdr nats.Header, payload []byte) (domain.Message, time.Time, error) {
	s, err := decodeSummary(hdr.Get(headerEnvelope))
	if err != nil {
		return domain.Message{}, time.Time{}, fmt.Errorf("message %d: %w", seq, err)
	}
	var e envelope
	if err := json.Unmarshal([]byte(s.body), &e); err != nil {
		return domain.Message{}, time.Time{}, fmt.Errorf("message %d: envelope: %w", seq, err)
	}
	m := domain.Message{
		Seq: seq, ID: e.ID, Channel: e.Channel, Producer: e.Producer, ContentType: e.ContentType,
		EventType: s.eventType, Priority: s.priority, Headers: e.Headers, Payload: payload, Trace: e.Trace,
		ReceivedAt: jobindex.FromUnixNano(s.receivedAt),
	}
	if hdr.Get(headerScheduler) != "" {
		m.ReceivedAt = stored.UTC()
	}
	return m, jobindex.FromUnixNano(e.For), nil
}
