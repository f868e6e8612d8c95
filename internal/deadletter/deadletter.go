// Package deadletter stores the copy of a message that was given up.
package deadletter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Advisories is the prefix of the server's advisories for messages that reached MaxDeliver. The names of stream and consumer follow.
const Advisories = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."

// The headers of a copy. The root package exports and describes them.
const (
	HeaderReason   = "Dead-Letter-Reason"
	HeaderStream   = "Dead-Letter-Stream"
	HeaderSequence = "Dead-Letter-Sequence"
	HeaderSubject  = "Dead-Letter-Subject"
	HeaderConsumer = "Dead-Letter-Consumer"
	HeaderAttempts = "Dead-Letter-Attempts"
	HeaderMsgID    = "Dead-Letter-Msg-Id"
	HeaderPayload  = "Dead-Letter-Payload"
	HeaderHeaders  = "Dead-Letter-Headers"
)

// Message is a message that is given up, and the reason.
type Message struct {
	Stream, Consumer string
	Sequence         uint64
	Stored           int64 // nanoseconds since 1970
	Subject          string
	Header           nats.Header
	Data             []byte
	Reason           string
	Attempts         int
}

// Store publishes the copy to a subject, and returns nil when a stream has confirmed it. A copy that is too large is reduced, because every attempt
// would be refused. A copy that any process has stored within the stream's duplicate window is not stored again.
func (m *Message) Store(ctx context.Context, js jetstream.JetStream, subject string) error {
	sequence := strconv.FormatUint(m.Sequence, 10)
	own := map[string]string{
		HeaderReason: m.Reason, HeaderStream: m.Stream, HeaderSequence: sequence,
		HeaderSubject: m.Subject, HeaderConsumer: m.Consumer, HeaderAttempts: strconv.Itoa(m.Attempts),
	}
	dead := &nats.Msg{Subject: subject, Data: m.Data, Header: nats.Header{}}
	maps.Copy(dead.Header, m.Header)
	// The server acted on these headers of the original, and must not act on them again.
	maps.DeleteFunc(dead.Header, func(k string, _ []string) bool { return strings.HasPrefix(k, "Nats-") })
	if id := m.Header.Get(jetstream.MsgIDHeader); id != "" {
		dead.Header.Set(HeaderMsgID, id)
	}
	// The id contains the time, because another message gets the same sequence when the stream is recreated.
	id := jetstream.WithMsgID(fmt.Sprintf("%s:%s:%s:%d", m.Stream, m.Consumer, sequence, m.Stored))
	var err error
	for _, reduce := range []func(){
		func() {},
		func() { dead.Data, own[HeaderPayload] = nil, "too large" },
		func() { dead.Header, own[HeaderHeaders] = nats.Header{}, "too large" },
	} {
		reduce()
		for key, value := range own {
			dead.Header.Set(key, value)
		}
		if _, err = js.PublishMsg(ctx, dead, id); !tooLarge(err) {
			return err
		}
	}
	return err
}

// tooLarge reports whether a stream or the server refuses a message because of its size.
func tooLarge(err error) bool {
	const messageExceedsMaximum, headersExceedMaximum = 10054, 10097 // codes of the server
	var api *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) ||
		errors.As(err, &api) && (api.ErrorCode == messageExceedsMaximum || api.ErrorCode == headersExceedMaximum)
}
