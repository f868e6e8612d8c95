package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/internal/wire"
)

const (
	defaultReplyTimeout = 5 * time.Minute
	// publishTry bounds one try to publish, and publishPause is the pause before the next.
	publishTry   = 5 * time.Second
	publishPause = 250 * time.Millisecond
	// repliesAgain is the pause before replies are read again after an error.
	repliesAgain = time.Second
	// repliesAckWait is the time after which a reply that was in transit when the connection broke is redelivered.
	repliesAckWait = 2 * time.Second
	// repliesForgotten is the time after which the server deletes the consumer of a processor that died.
	repliesForgotten = 5 * time.Minute
	// closeWait bounds Close.
	closeWait = 5 * time.Second
)

// HeaderReply is the header of a message of [JetStreamProcessor] with the subject to which the worker publishes the answer.
const HeaderReply = "Feed-Reply"

var (
	errNoReply = errors.New("no reply came in time")
	errClosed  = errors.New("the JetStream processor is closed")
)

// JetStreamOption changes how the processor of [NewJetStreamProcessor] works.
type JetStreamOption func(*JetStreamProcessor) error

// ReplyTimeout sets the time limit of an attempt, from its publication to the reply, at least 1 s. It includes the wait for a worker, and the time
// for which NATS is down. The default is 5 minutes. An attempt that exceeds it fails.
func ReplyTimeout(d time.Duration) JetStreamOption {
	return func(p *JetStreamProcessor) error {
		p.timeout = d
		return check(d >= time.Second, "ReplyTimeout", "%v is below 1s", d)
	}
}

// JetStreamProcessor is a [Processor] that passes items to workers, on this or other machines, through JetStream.
type JetStreamProcessor struct {
	js      jetstream.JetStream
	subject string // of items
	timeout time.Duration
	ttl     string // of items in the stream; empty if the stream allows none

	replies string // the stream of replies
	prefix  string // of the subjects of this processor's replies; the call follows
	name    string // of the consumer

	stop context.CancelFunc
	done chan struct{} // closed when no more replies will come

	calls sync.Map // chan []byte by call
}

// NewJetStreamProcessor returns a processor that publishes each attempt to subject, with the item's data and the headers of [NewHTTPProcessor],
// and waits for the reply. Any number of workers share a consumer of the subject, through [JetStreamHandler]. One or two streams must capture
// subject, and subject.done.> for the replies. This creates such a stream, and a consumer for the workers:
//
//	js.CreateStream(ctx, jetstream.StreamConfig{
//		Name: "RESUMES", Subjects: []string{"resumes", "resumes.done.>"}, Retention: jetstream.WorkQueuePolicy, AllowMsgTTL: true,
//	})
//	js.CreateConsumer(ctx, "RESUMES", jetstream.ConsumerConfig{Durable: "workers", FilterSubject: "resumes"})
//
// A reply belongs to one call of Process. If it arrives after the call has ended, because it took longer than [ReplyTimeout], the lease was lost or
// the watcher died, it is dropped, and the item is processed again with the same idempotency key. With AllowMsgTTL, the stream deletes attempts for
// which no call waits any more. While NATS is down, attempts wait until their ReplyTimeout. The processor creates a consumer for its replies, and
// Close deletes it. Errors are [ErrInvalid] or those of NATS.
func NewJetStreamProcessor(ctx context.Context, js jetstream.JetStream, subject string, opts ...JetStreamOption) (*JetStreamProcessor, error) {
	id := nuid.Next()
	p := &JetStreamProcessor{
		js: js, subject: subject, timeout: defaultReplyTimeout, prefix: subject + ".done." + id + ".", name: "feed-" + id,
		done: make(chan struct{}),
	}
	named := subject != "" && !strings.ContainsAny(subject, "*> \t\r\n")
	err := cmp.Or(
		check(js != nil, "js", "is nil"), check(named, "subject", "%q is empty or has spaces or wildcards", subject),
		apply("JetStreamOption", p, opts),
	)
	if err != nil {
		return nil, err
	}
	items, err := p.stream(ctx, subject)
	if err != nil {
		return nil, err
	}
	replies, err := p.stream(ctx, p.prefix+"x")
	if err != nil {
		return nil, err
	}
	p.replies = replies.Name
	if items.AllowMsgTTL {
		p.ttl = (p.timeout + time.Second - 1).Truncate(time.Second).String()
	}
	if err := p.consumer(ctx); err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	go p.read(life)
	return p, nil
}

// stream finds the stream that captures a subject.
func (p *JetStreamProcessor) stream(ctx context.Context, subject string) (*jetstream.StreamConfig, error) {
	name, err := p.js.StreamNameBySubject(ctx, subject)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, invalid("subject", "no stream captures %q; one must capture %s and %s.done.>", subject, p.subject, p.subject)
	}
	if err != nil {
		return nil, fmt.Errorf("feed: find the stream of subject %q: %w", subject, err)
	}
	s, err := p.js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("feed: read stream %q: %w", name, err)
	}
	return &s.CachedInfo().Config, nil
}

// consumer creates the consumer of the replies if it does not exist.
func (p *JetStreamProcessor) consumer(ctx context.Context) error {
	_, err := p.js.CreateOrUpdateConsumer(ctx, p.replies, jetstream.ConsumerConfig{
		Name: p.name, FilterSubject: p.prefix + "*", InactiveThreshold: repliesForgotten, AckWait: repliesAckWait,
		Description: "replies to a JetStream processor of the feed",
	})
	if err != nil {
		return fmt.Errorf("feed: create consumer %q on stream %q: %w", p.name, p.replies, err)
	}
	return nil
}

// read reads replies until ctx ends. It recreates a consumer that the server has lost: unacknowledged replies are still in the stream.
func (p *JetStreamProcessor) read(ctx context.Context) {
	defer close(p.done)
	for {
		err := p.consume(ctx)
		if ctx.Err() != nil {
			return
		}
		slog.Warn("feed: no replies by JetStream", "stream", p.replies, "consumer", p.name, "error", err, "again", repliesAgain)
		_ = watch.Sleep(ctx, jitter(repliesAgain)) // at the end of ctx, consume returns
	}
}

func (p *JetStreamProcessor) consume(ctx context.Context) error {
	if err := p.consumer(ctx); err != nil {
		return err
	}
	sub, err := jetpull.Subscribe(ctx, p.js, p.replies, p.name)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	return sub.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
		if call, waits := p.calls.LoadAndDelete(strings.TrimPrefix(m.Subject(), p.prefix)); waits {
			call.(chan []byte) <- m.Data() // the first reply counts, and the channel has a slot for it
		}
		return nil
	})
}

// Process implements [Processor].
func (p *JetStreamProcessor) Process(ctx context.Context, it Item) (Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("%w: %v", errNoReply, p.timeout))
	defer cancel()
	call, reply := nuid.Next(), make(chan []byte, 1)
	p.calls.Store(call, reply)
	defer p.calls.Delete(call)
	m := p.message(it, call)
	traceContext.Inject(ctx, propagation.HeaderCarrier(m.Header))
	if err := publish(ctx, p.js, m, p.timeout); err != nil {
		return Response{}, err
	}
	select {
	case body := <-reply:
		return ParseResponse(body)
	case <-p.done:
		return Response{}, errClosed
	case <-ctx.Done():
		return Response{}, context.Cause(ctx)
	}
}

// message returns the message of an attempt. Its ID includes the call. With only key and attempt, the stream would drop, as a duplicate, the message
// that another watcher publishes after this one died, and the reply would go to the dead one.
func (p *JetStreamProcessor) message(it Item, call string) *nats.Msg {
	m := &nats.Msg{Subject: p.subject, Data: it.Data, Header: it.header()}
	m.Header.Set(HeaderReply, p.prefix+call)
	m.Header.Set(jetstream.MsgIDHeader, fmt.Sprintf("%s-%d-%s", it.IdempotencyKey(), it.Attempt, call))
	if p.ttl != "" {
		m.Header.Set(jetstream.MsgTTLHeader, p.ttl)
	}
	return m
}

// publish publishes a message, and retries until NATS confirms it or ctx ends. A message with an ID is stored once. While connected, publish waits
// for the confirmation no longer than patience. If the message is too large for the server or the stream, the error is permanent.
func publish(ctx context.Context, js jetstream.JetStream, m *nats.Msg, patience time.Duration) error {
	for {
		begun := time.Now()
		try, cancel := context.WithTimeout(ctx, publishTry)
		_, err := js.PublishMsg(try, m)
		cancel()
		if js.Conn().IsConnected() {
			patience -= time.Since(begun) + publishPause
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum):
			return Permanent(fmt.Errorf("publish %d bytes to %s: %w", len(m.Data), m.Subject, err))
		case errors.Is(err, nats.ErrConnectionClosed), patience <= 0:
			return fmt.Errorf("publish to %s: %w", m.Subject, err)
		}
		if ended := watch.Sleep(ctx, jitter(publishPause)); ended != nil {
			return fmt.Errorf("%w: publish to %s: %w", ended, m.Subject, err)
		}
	}
}

// Close stops reading replies and deletes their consumer. Call it after Run has returned, because calls of Process then fail.
func (p *JetStreamProcessor) Close() error {
	p.stop()
	<-p.done
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	err := p.js.DeleteConsumer(ctx, p.replies, p.name)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("feed: delete consumer %q of stream %q, which the server does after %v: %w", p.name, p.replies, repliesForgotten, err)
	}
	return nil
}

// replyWait bounds the time to publish a reply while NATS is down, and replyUnconfirmed while it is up but does not confirm, because the worker may
// not publish there or a stream has no leader. After that, the item's message is redelivered and processed again.
const replyWait, replyUnconfirmed = time.Minute, 10 * time.Second

// replyName matches the end of a reply's subject, after subject.done.: the processor and the call.
var replyName = regexp.MustCompile(`^[0-9A-Za-z]+\.[0-9A-Za-z]+$`)

// JetStreamHandler returns a handler for Consume that processes the items of a [JetStreamProcessor]. The consumer is one of the stream that
// captures the processor's subject:
//
//	handler, err := feed.JetStreamHandler(js, feed.ProcessorFunc(process))
//	sub, err := jetpull.Subscribe(ctx, js, "RESUMES", "workers")
//	err = sub.Consume(ctx, handler, jetpull.Concurrency(8))
//
// An item has its ID, Partition, Gate, Status, Attempt, Data and idempotency key. An error of Process is sent in the reply, with [Permanent] and
// [RetryAfter], and is a failed attempt. The message is acknowledged when the reply is stored. It is redelivered if the worker dies, if Consume ends
// before Process returns, or if the reply cannot be stored. A message is terminated if it is not an item, or if its [HeaderReply] does not match
// subject.done.>, where subject is the message's own: anybody who may publish items can set that header. A worker in another language makes the same
// check. It publishes the answer that a handler of [NewHTTPProcessor] would return, to the subject in HeaderReply, and then acknowledges the message.
func JetStreamHandler(js jetstream.JetStream, p Processor) (jetpull.Handler, error) {
	if err := cmp.Or(check(js != nil, "js", "is nil"), check(p != nil, "Processor", "is nil")); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m *jetpull.Msg) error {
		it, reply, err := receivedItem(m)
		if err != nil {
			return jetpull.Terminate("not an item of a feed", err)
		}
		if !trace.SpanContextFromContext(ctx).IsValid() { // otherwise otelpull's handler calls this one
			ctx = traceContext.Extract(ctx, propagation.HeaderCarrier(m.Headers()))
		}
		resp, err := attempt(ctx, p, it)
		if err != nil && ctx.Err() != nil {
			return err // cancelled: the attempt has not failed, and another worker makes it
		}
		ctx, cancel := context.WithTimeout(ctx, replyWait)
		defer cancel()
		err = publishReply(ctx, js, reply, resp, err)
		if _, tooLarge := errors.AsType[*permanentError](err); tooLarge {
			err = publishReply(ctx, js, reply, Response{}, Permanent(fmt.Errorf("the response is too large: %w", err)))
		}
		return err
	}, nil
}

func publishReply(ctx context.Context, js jetstream.JetStream, subject string, resp Response, err error) error {
	body, err := encodeReply(resp, err)
	if err != nil {
		return err
	}
	return publish(ctx, js, &nats.Msg{Subject: subject, Data: body}, replyUnconfirmed)
}

func receivedItem(m *jetpull.Msg) (it Item, reply string, err error) {
	header := m.Headers()
	for _, name := range []string{HeaderItem, HeaderPartition, HeaderIdempotencyKey, HeaderReply} {
		if header.Get(name) == "" {
			err = errors.Join(err, fmt.Errorf("header %s is missing", name))
		}
	}
	reply = header.Get(HeaderReply)
	if name, ok := strings.CutPrefix(reply, m.Subject()+".done."); reply != "" && (!ok || !replyName.MatchString(name) || len(reply) > wire.MaxSubject) {
		err = errors.Join(err, fmt.Errorf("header %s is %.500q, and replies to %s go to %s.done.PROCESSOR.CALL", HeaderReply, reply, m.Subject(),
			m.Subject()))
	}
	gate, noGate := strconv.Atoi(header.Get(HeaderGate))
	attempt, noAttempt := strconv.Atoi(header.Get(HeaderAttempt))
	it = Item{
		ID: header.Get(HeaderItem), Partition: header.Get(HeaderPartition), Gate: gate, Attempt: attempt,
		Status: Available, Data: m.Data(), key: header.Get(HeaderIdempotencyKey),
	}
	return it, reply, errors.Join(err, noGate, noAttempt)
}
