package jetpull

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/wire"
)

// Subscription is a client's hold on one pull consumer. All its methods may be
// called from any number of goroutines. It owns goroutines and subscriptions
// until it is closed.
type Subscription struct {
	js               jetstream.JetStream
	nc               *nats.Conn
	handle           jetstream.Consumer
	stream, consumer string
	live             atomic.Pointer[jetstream.ConsumerConfig] // see config
	changed          atomic.Bool                              // since Subscribe
	defaults         *settings
	ackNone          atomic.Bool
	ackPrefix        string // of the reply subjects of first version
	engine           *engine
	trip             time.Duration // to the server and back, when it was made
	counts           counts
	warned           atomic.Bool // of a wait that outlives a pin
	refusals         *refusals   // of pulls
}

// counts are what the messages of a Subscription report of themselves.
type counts struct {
	acks, naks, terms, inProgress, redelivered, handedBack, reconnects atomic.Uint64
}

// Subscribe binds to a durable or ephemeral pull consumer that exists. js
// brings the connection, the API prefix and the domain. opts are the defaults
// for all calls on the Subscription.
//
// What cannot work with the consumer as it is is refused here: a push
// consumer with [ErrNotPull]; a group that the consumer does not have, a
// missing group where it needs one, and thresholds that its policy does not know
// with [ErrInvalidOption]; a consumer that does not exist with
// [jetstream.ErrConsumerNotFound]; an inbox that the connection may not
// subscribe to with [nats.ErrPermissionViolation].
//
// The consumer's configuration may change later. It is read again when the consumer
// was gone or the connection was, when it refuses a pull for a limit, and no more than
// once in ten seconds when a message comes again that is held, a pin is lost, or
// MaxWaiting is reached. AckWait, BackOff, MaxDeliver, MaxAckPending, the limits of
// requests and the pin's time are taken over; Messages and Consume end with
// [ErrInvalidOption] where a new call would. A limit that is lowered ends a call with
// [ErrLimitExceeded] only where the caller asked for more.
func Subscribe(ctx context.Context, js jetstream.JetStream, stream, consumer string, opts ...Option) (*Subscription, error) {
	if err := checkTarget(ctx, js, stream, consumer); err != nil {
		return nil, err
	}
	nc := js.Conn()
	if nc.IsClosed() {
		return nil, fmt.Errorf("jetpull: subscribe: %w: %w", ErrClosed, nats.ErrConnectionClosed)
	}
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	inbox, err := openInbox(ctx, nc)
	if err != nil {
		return nil, err
	}
	s, err := bind(ctx, js, stream, consumer, opts)
	if err != nil {
		_ = inbox.sub.Unsubscribe()
		return nil, err
	}
	s.trip = inbox.trip
	s.start(inbox)
	return s, nil
}

// bind reads the consumer's info and checks it against the options.
func bind(ctx context.Context, js jetstream.JetStream, stream, consumer string, opts []Option) (*Subscription, error) {
	handle, err := lookUp(ctx, js, stream, consumer)
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, fmt.Errorf("jetpull: consumer %q on stream %q delivers by push; create it without DeliverSubject: %w", consumer, stream, ErrNotPull)
	}
	if err != nil {
		return nil, infoError(js, stream, consumer, err)
	}
	info := handle.CachedInfo()
	s := &Subscription{
		js: js, nc: js.Conn(), handle: handle,
		stream: stream, consumer: info.Name,
		refusals: newRefusals(js.Conn()),
	}
	s.configure(info.Config)
	s.ackPrefix = wire.AckPrefix + stream + "." + info.Name + "."
	s.defaults, err = defaultSettings().with(callSubscribe, s.config(), opts)
	if err != nil {
		return nil, err
	}
	s.warnPinTimeout(s.defaults)
	return s, nil
}

// lookUp reads the consumer's info.
func lookUp(ctx context.Context, js jetstream.JetStream, stream, consumer string) (handle jetstream.Consumer, err error) {
	err = request(ctx, js.Conn(), wire.InfoSubject(apiPrefix(js), stream, consumer), func(ctx context.Context) (err error) {
		handle, err = js.Consumer(ctx, stream, consumer)
		return err
	})
	return handle, err
}

// warnPinTimeout tells, once for a Subscription, where a pull can outlive the
// pin that it should keep.
func (s *Subscription) warnPinTimeout(set *settings) {
	if s.config().PriorityPolicy != jetstream.PriorityPolicyPinned || s.config().PinnedTTL <= 0 {
		return
	}
	wait, _ := set.wait()
	if 2*wait <= s.config().PinnedTTL || s.warned.Swap(true) {
		return
	}
	set.logger.Warn("jetpull: a pull may outlive the pin: keep MaxWait under half of the consumer's priority timeout",
		"stream", s.stream, "consumer", s.consumer, "group", set.terms.group,
		"wait", wait, "priority_timeout", s.config().PinnedTTL)
}

// openInbox subscribes the first pooled inbox and waits until the server has
// taken it, so that a missing permission is told here and not as a time-out.
func openInbox(ctx context.Context, nc *nats.Conn) (*firstInbox, error) {
	f := &firstInbox{base: nc.NewInbox(), in: make(chan *nats.Msg, inboxSlots)}
	sub, err := nc.ChanSubscribe(f.base+".0.*", f.in)
	if err != nil {
		return nil, fmt.Errorf("jetpull: subscribe to inbox %s: %w", f.base, closedError(err))
	}
	f.sub = sub
	sent := time.Now()
	if err := nc.FlushWithContext(ctx); err != nil {
		_ = sub.Unsubscribe()
		return nil, requestError("subscribe", sub.Subject, err)
	}
	f.trip = time.Since(sent)
	if err := permissionError(nc, sub.Subject); err != nil {
		_ = sub.Unsubscribe()
		return nil, err
	}
	return f, nil
}

type firstInbox struct {
	base string
	in   chan *nats.Msg
	sub  *nats.Subscription
	trip time.Duration // to the server and back
}

// infoError is the reason why a consumer's info could not be read.
func infoError(js jetstream.JetStream, stream, consumer string, err error) error {
	subject := wire.InfoSubject(apiPrefix(js), stream, consumer)
	if errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return fmt.Errorf("jetpull: consumer %q on stream %q: %w", consumer, stream, err)
	}
	return requestError("consumer info", subject, err)
}

// Info asks the server for the consumer's current state.
func (s *Subscription) Info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	var info *jetstream.ConsumerInfo
	err := request(ctx, s.nc, wire.InfoSubject(apiPrefix(s.js), s.stream, s.consumer), func(ctx context.Context) (err error) {
		info, err = s.handle.Info(ctx)
		return err
	})
	if err != nil {
		return nil, infoError(s.js, s.stream, s.consumer, err)
	}
	return info, nil
}

// Close ends all calls on the Subscription with [ErrClosed], hands what they
// did not get back to the server, and waits until that is done and everything
// that the Subscription owns has stopped. If ctx ends first it returns ctx's
// error and the rest goes on by itself. Closing twice is fine. Messages that were
// handed over can still be acknowledged. A handler may call Close; a callback of
// [OnPin], [OnUnpin] or [OnError] must leave it to another goroutine, because Close
// waits for callbacks.
func (s *Subscription) Close(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	return s.engine.close(ctx)
}

// checkTarget refuses what no call on a consumer can work with.
func checkTarget(ctx context.Context, js jetstream.JetStream, stream, consumer string) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if js == nil {
		return invalid("js", "is nil; make one with jetstream.New")
	}
	return checkNames(stream, consumer)
}

func checkContext(ctx context.Context) error {
	if ctx == nil {
		return invalid("ctx", "is nil; use context.Background()")
	}
	return nil
}

func checkNames(stream, consumer string) error {
	if bad(stream) {
		return invalid("stream", "%q is not a stream name: it must not be empty nor contain spaces, tabs, dots, * or >", stream)
	}
	if bad(consumer) {
		return invalid("consumer", "%q is not a consumer name: it must not be empty nor contain spaces, tabs, dots, * or >", consumer)
	}
	return nil
}

func bad(name string) bool {
	return name == "" || strings.ContainsAny(name, " \t\r\n\f.*>/\\")
}

// apiPrefix is the prefix of API subjects that js uses.
func apiPrefix(js jetstream.JetStream) string {
	o := js.Options()
	return wire.APIPrefix(o.APIPrefix, o.Domain)
}

// withDefaultTimeout bounds ctx to 5 s if it has no deadline.
func withDefaultTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, 5*time.Second)
}

// closedError adds ErrClosed to what nats.go says of a closed connection.
func closedError(err error) error {
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionDraining) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}
