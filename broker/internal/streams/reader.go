package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/wire"
)

// Reader reads single messages of the streams.
type Reader struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	link     *Link
	replicas int
}

// NewReader reads streams of so many replicas.
func NewReader(js jetstream.JetStream, link *Link, replicas int) *Reader {
	return &Reader{nc: js.Conn(), js: js, link: link, replicas: replicas}
}

// Last reads the last message of a subject. With replicas only the leader is
// asked: any other may be behind.
func (r *Reader) Last(ctx context.Context, stream jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	if err := r.link.await(ctx); err != nil {
		return nil, err
	}
	var raw *jetstream.RawStreamMsg
	var err error
	if r.replicas > 1 {
		raw, err = r.AskLeader(ctx, stream.CachedInfo().Config.Name, subject)
	} else {
		raw, err = stream.GetLastMsgForSubject(ctx, subject)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("%w: nothing is stored on %s", domain.ErrNotFound, subject)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", domain.ErrUnavailable, subject, err)
	}
	return raw, nil
}

// At reads the message at a sequence from any replica: a message never changes.
// One that is behind does not have it yet, so that it takes the leader to say
// that there is none.
func (r *Reader) At(ctx context.Context, stream jetstream.Stream, seq uint64) (*jetstream.RawStreamMsg, error) {
	if err := r.link.await(ctx); err != nil {
		return nil, err
	}
	raw, err := stream.GetMsg(ctx, seq)
	if r.replicas > 1 && errors.Is(err, jetstream.ErrMsgNotFound) {
		return r.fromLeader(ctx, stream.CachedInfo().Config.Name, leaderRequest{Seq: seq})
	}
	return raw, err
}

// leaderRequest is what STREAM.MSG.GET is asked for: one of the two.
type leaderRequest struct {
	Seq  uint64 `json:"seq,omitempty"`
	Last string `json:"last_by_subj,omitempty"`
}

// AskLeader reads the last message of a subject from the leader of a stream.
func (r *Reader) AskLeader(ctx context.Context, stream, subject string) (*jetstream.RawStreamMsg, error) {
	return r.fromLeader(ctx, stream, leaderRequest{Last: subject})
}

// fromLeader reads from the leader, again while there may be none: then nobody
// answers, or somebody who can only say so.
func (r *Reader) fromLeader(ctx context.Context, stream string, request leaderRequest) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
	defer cancel()
	var told error // more than that the time was over
	for {
		if err := r.link.await(ctx); err != nil {
			return nil, err
		}
		attempt, done := context.WithTimeout(ctx, AttemptTimeout)
		raw, err := r.requestFromLeader(attempt, stream, request)
		done()
		if err == nil || !passes(err) {
			return raw, err
		}
		if told == nil || ctx.Err() == nil {
			told = err
		}
		select {
		case <-ctx.Done():
			return nil, told
		case <-time.After(retryPause):
		}
	}
}

// passes tells whether a request that failed may succeed in a moment: a leader
// is being elected, or a server is on its way back. Whatever else a server
// answers, it would answer again.
func passes(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.Code == http.StatusServiceUnavailable
	}
	for _, passing := range []error{
		nats.ErrNoResponders, nats.ErrTimeout, context.DeadlineExceeded,
		nats.ErrConnectionReconnecting, nats.ErrDisconnected, nats.ErrReconnectBufExceeded,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

// leaderReply is the part of the answer to STREAM.MSG.GET that is used.
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

func (r *Reader) requestFromLeader(ctx context.Context, stream string, request leaderRequest) (*jetstream.RawStreamMsg, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	opts := r.js.Options()
	prefix := wire.APIPrefix(opts.APIPrefix, opts.Domain)
	answer, err := r.nc.RequestWithContext(ctx, prefix+"STREAM.MSG.GET."+stream, body)
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
