package jsstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/wire"
)

// leaderRequest is a request to STREAM.MSG.GET for the last message of a subject, or for the first message at or after a sequence.
type leaderRequest struct {
	Seq  uint64 `json:"seq,omitempty"`
	Next string `json:"next_by_subj,omitempty"`
	Last string `json:"last_by_subj,omitempty"`
}

// leaderReply has the used part of the answer of STREAM.MSG.GET.
type leaderReply struct {
	Error   *jetstream.APIError `json:"error"`
	Message struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Header  []byte    `json:"hdrs"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

// Next reads the first message on a subject at or after a sequence, from the leader. If subject is empty, it reads the message at the sequence. It
// returns [jetstream.ErrMsgNotFound] if there is none.
//
// Next is for messages of other publishers. If a stream allows direct get, GetMsg of package jetstream reads sequence, subject, time and even "not
// found" from the headers of the message. A publisher can set these headers too, and its values come before the server's.
func Next(ctx context.Context, js jetstream.JetStream, stream string, seq uint64, subject string) (*jetstream.RawStreamMsg, error) {
	return ask(ctx, js, stream, leaderRequest{Seq: max(seq, 1), Next: subject})
}

// Newest reads the last message of a subject from the leader.
func Newest(ctx context.Context, js jetstream.JetStream, stream, subject string) (*jetstream.RawStreamMsg, error) {
	return ask(ctx, js, stream, leaderRequest{Last: subject})
}

// Delete deletes the message at a sequence. It returns [jetstream.ErrMsgNotFound] if there is none.
func Delete(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, seq uint64) error {
	err := stream.DeleteMsg(ctx, seq)
	if err == nil {
		return nil
	}
	// The server's error for a missing sequence is also used for other failures.
	if _, missing := Next(ctx, js, stream.CachedInfo().Config.Name, seq, ""); errors.Is(missing, jetstream.ErrMsgNotFound) {
		return missing
	}
	return err
}

// ask asks the leader of a stream once. A failing server can lose the request or the answer, so if ctx has no deadline, ask uses the timeout of js's
// other requests.
func ask(ctx context.Context, js jetstream.JetStream, stream string, request leaderRequest) (*jetstream.RawStreamMsg, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	opts := js.Options()
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, opts.DefaultTimeout)
		defer cancel()
	}
	prefix := wire.APIPrefix(opts.APIPrefix, opts.Domain)
	answer, err := js.Conn().RequestWithContext(ctx, prefix+"STREAM.MSG.GET."+stream, body)
	if err != nil {
		return nil, fmt.Errorf("ask the leader of stream %s: %w", stream, err)
	}
	var reply leaderReply
	if err := json.Unmarshal(answer.Data, &reply); err != nil {
		return nil, fmt.Errorf("answer of stream %s to STREAM.MSG.GET: %w", stream, err)
	}
	if reply.Error != nil {
		if reply.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return nil, jetstream.ErrMsgNotFound
		}
		return nil, fmt.Errorf("ask the leader of stream %s: %w", stream, reply.Error)
	}
	m := reply.Message
	raw := &jetstream.RawStreamMsg{Subject: m.Subject, Sequence: m.Seq, Data: m.Data, Time: m.Time}
	if len(m.Header) > 0 {
		if raw.Header, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return nil, fmt.Errorf("header of message %d: %w", m.Seq, err)
		}
	}
	return raw, nil
}

// Last reads the last message of a stream on a subject, and At the message at a sequence. If the stream allows direct get, any server with the stream
// may answer. Like [Next], they do not trust headers that a publisher could have set. They return [jetstream.ErrMsgNotFound] if the server that
// answers does not have the message.
func Last(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	return get(ctx, js, stream, leaderRequest{Last: subject})
}

// At is described with [Last].
func At(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, seq uint64) (*jetstream.RawStreamMsg, error) {
	return get(ctx, js, stream, leaderRequest{Seq: seq})
}

func get(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, request leaderRequest) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
	defer cancel()
	config := stream.CachedInfo().Config
	if !config.AllowDirect {
		return ask(ctx, js, config.Name, request)
	}
	opts := js.Options()
	subject, body := wire.APIPrefix(opts.APIPrefix, opts.Domain)+"DIRECT.GET."+config.Name, []byte(nil)
	if request.Last != "" {
		subject += "." + request.Last // a user may have permission for some subjects only
	} else {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return nil, err
		}
	}
	answer, err := js.Conn().RequestWithContext(ctx, subject, body)
	if err != nil {
		return nil, fmt.Errorf("read a message of stream %s: %w", config.Name, err)
	}
	switch raw, ok, err := Direct(answer); {
	case err != nil || ok:
		return raw, err
	case answer.Header.Get("Status") == "404":
		return nil, jetstream.ErrMsgNotFound
	}
	return nil, fmt.Errorf("read a message of stream %s: the server answered %s %s", config.Name, answer.Header.Get("Status"),
		answer.Header.Get("Description"))
}

// ofDirectGet lists the headers that the direct get API adds to a message.
var ofDirectGet = []string{
	"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence",
	"Nats-UpTo-Sequence",
}

// Direct decodes an answer of the direct get API (ADR-31). ok is false if it is not a message, such as the end of a batch. The server adds the
// position of a message after the message's own headers, and only to messages. So Direct uses the last value of each header.
func Direct(m *nats.Msg) (one *jetstream.RawStreamMsg, ok bool, err error) {
	last := func(key string) string {
		values := m.Header[key]
		if len(values) == 0 {
			return ""
		}
		return values[len(values)-1]
	}
	if last("Nats-Sequence") == "" {
		return nil, false, nil
	}
	seq, err := strconv.ParseUint(last("Nats-Sequence"), 10, 64)
	if err != nil {
		return nil, false, fmt.Errorf("the answer has no sequence: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, last("Nats-Time-Stamp"))
	if err != nil {
		return nil, false, fmt.Errorf("message %d has no time: %w", seq, err)
	}
	one = &jetstream.RawStreamMsg{Subject: last("Nats-Subject"), Sequence: seq, Time: at, Data: m.Data, Header: nats.Header{}}
	for key, values := range m.Header {
		one.Header[key] = values
	}
	for _, key := range ofDirectGet {
		delete(one.Header, key)
	}
	return one, true, nil
}

// StoredAfter returns when the first message for a consumer after a sequence was stored, or zero if there is none. For a consumer with more than 8
// filters, it returns the time of the first message on any subject, which is at least as old.
func StoredAfter(ctx context.Context, js jetstream.JetStream, c *jetstream.ConsumerInfo, sequence uint64) (at time.Time, err error) {
	const most = 8
	subjects := c.Config.FilterSubjects
	switch {
	case c.Config.FilterSubject != "":
		subjects = []string{c.Config.FilterSubject}
	case len(subjects) == 0 || len(subjects) > most:
		subjects = []string{">"}
	}
	for _, subject := range subjects {
		m, err := Next(ctx, js, c.Stream, sequence+1, subject)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case err != nil:
			return time.Time{}, err
		case at.IsZero() || m.Time.Before(at):
			at = m.Time
		}
	}
	return at, nil
}

// Overlap reports whether a subject can match both patterns, which are split at the dots.
func Overlap(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	return a[0] == ">" || b[0] == ">" || (a[0] == b[0] || a[0] == "*" || b[0] == "*") && Overlap(a[1:], b[1:])
}
