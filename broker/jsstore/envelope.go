package jsstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker"
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

func encodeEnvelope(m broker.Message, scheduledFor time.Time) (string, error) {
	body, err := json.Marshal(envelope{
		ID: m.ID, Channel: m.Channel, Producer: m.Producer, ContentType: m.ContentType,
		Headers: m.Headers, Trace: m.Trace, For: unixNano(scheduledFor),
	})
	if err != nil {
		return "", fmt.Errorf("encode the header of message %q: %w", m.ID, err)
	}
	if len(body) > maxEnvelope {
		return "", fmt.Errorf("%w: its ID and metadata headers take %d bytes, at most %d are allowed", broker.ErrTooLarge, len(body), maxEnvelope)
	}
	return strconv.Itoa(m.Priority) + " " + strconv.FormatInt(unixNano(m.ReceivedAt), 10) + " " + string(body), nil
}

// decodeSummary reads the front of an envelope: priority and time of receipt.
func decodeSummary(header string) (priority int, receivedAt int64, body string, err error) {
	first, rest, ok1 := strings.Cut(header, " ")
	second, body, ok2 := strings.Cut(rest, " ")
	priority, err1 := strconv.Atoi(first)
	receivedAt, err2 := strconv.ParseInt(second, 10, 64)
	if !ok1 || !ok2 || err1 != nil || err2 != nil {
		return 0, 0, "", fmt.Errorf("header %s: %q is not an envelope", headerEnvelope, header)
	}
	return priority, receivedAt, body, nil
}

// decodeMessage rebuilds a message. The time it was stored is its time of
// receipt if the server's scheduler published it.
func decodeMessage(seq uint64, stored time.Time, hdr nats.Header, payload []byte) (broker.Message, time.Time, error) {
	priority, receivedAt, body, err := decodeSummary(hdr.Get(headerEnvelope))
	if err != nil {
		return broker.Message{}, time.Time{}, fmt.Errorf("message %d: %w", seq, err)
	}
	var e envelope
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		return broker.Message{}, time.Time{}, fmt.Errorf("message %d: envelope: %w", seq, err)
	}
	m := broker.Message{
		Seq: seq, ID: e.ID, Channel: e.Channel, Producer: e.Producer, ContentType: e.ContentType,
		Priority: priority, Headers: e.Headers, Payload: payload, Trace: e.Trace,
		ReceivedAt: fromUnixNano(receivedAt),
	}
	if hdr.Get(headerScheduler) != "" {
		m.ReceivedAt = stored.UTC()
	}
	return m, fromUnixNano(e.For), nil
}
