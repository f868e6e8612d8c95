package jetpull

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/testmsg"
	"github.com/jetpull/jetpull/internal/transport"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/internal/wire"
	"github.com/jetpull/jetpull/internal/worker"
)

// Subscription is a client's binding to one pull consumer. All its methods may be called
// from any number of goroutines. It owns goroutines and subscriptions until it is closed.
type Subscription struct {
	js               jetstream.JetStream
	nc               *nats.Conn
	stream, consumer string
	ackPrefix        string // the prefix of reply subjects of the first form: see wire.Ack
	defaults         *settings
	trip             time.Duration // round trip to the server, measured by Subscribe
	reconnects       uint64        // of the connection before Subscribe
	driver           *transport.Driver
	notifier         *worker.Notifier
	recorder         testmsg.Recorder // set for messages that jetpulltest creates; nil: a server delivers them

	session atomic.Pointer[session]
	watcher watcher

	counts counts
	gaps   gaps
	calls  calls
}

// calls holds the open runs and their shared state.
type calls struct {
	mu   sync.Mutex
	runs []*run // under mu

	unpins  chan struct{} // a semaphore: one element while a run gives up its pin
	pinning atomic.Int32  // calls of OnPin that have not returned; until then, runs start no message
}

// counts holds the counters that the engine does not keep.
type counts struct {
	settled                 [worker.Naked + 1]atomic.Uint64 // messages, by worker.Settlement
	inProgress, redelivered atomic.Uint64

	mu       sync.Mutex
	attempts Attempts // under mu
}

// Subscribe binds to an existing pull consumer, durable or ephemeral. js determines the connection, the API prefix and the
// domain. opts are the defaults for all calls on the Subscription.
//
// Subscribe checks the consumer and the options. It refuses a push consumer with [ErrNotPull]. With [ErrInvalidOption] it
// refuses a group that the consumer does not have, a missing group, and thresholds that its policy does not support. It
// fails with [jetstream.ErrConsumerNotFound] if the consumer does not exist, and with [nats.ErrPermissionViolation] if the
// connection may not subscribe to its inbox. A server before version 2.11 is refused.
//
// A consumer of nats.go's OrderedConsumer works until nats.go deletes it, which can happen at any time.
//
// The consumer's configuration may change later: see "Changes of the consumer" in the package documentation.
func Subscribe(ctx context.Context, js jetstream.JetStream, stream, consumer string, opts ...SubscribeOption) (*Subscription, error) {
	if err := checkTarget(ctx, js, stream, consumer); err != nil {
		return nil, err
	}
	nc := js.Conn()
	if nc.IsClosed() {
		return nil, fmt.Errorf("jetpull: subscribe: %w: %w", ErrClosed, nats.ErrConnectionClosed)
	}
	if v := nc.ConnectedServerVersion(); wire.IsOld(v) {
		return nil, fmt.Errorf("jetpull: subscribe: server %q has version %s, and 2.11 is the first that a pull works on; update it",
			nc.ConnectedServerName(), v)
	}
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	begun := time.Now()
	inboxes, err := transport.CheckInboxes(ctx, nc)
	if err != nil {
		return nil, requestError(nc, nil, begun, "subscribe", "an inbox", err)
	}
	asked := time.Now()
	info, err := readInfo(ctx, js, stream, consumer)
	if err != nil {
		return nil, err
	}
	took := time.Since(asked)
	s := &Subscription{
		js: js, nc: nc, stream: stream, consumer: info.Name, reconnects: nc.Stats().Reconnects,
		ackPrefix: wire.AckPrefix + stream + "." + info.Name + ".",
	}
	s.calls.unpins = make(chan struct{}, 1)
	s.session.Store(sessionOf(info))
	s.gaps.next = info.Delivered.Consumer + 1
	if s.defaults, err = with(defaultSettings(), callSubscribe, s.config(), opts, true); err != nil {
		return nil, err
	}
	s.start(inboxes, took)
	return s, nil
}

// SubscribeConsumer is [Subscribe] for a consumer that nats.go has returned, for example from CreateOrUpdateConsumer.
func SubscribeConsumer(ctx context.Context, js jetstream.JetStream, c jetstream.Consumer, opts ...SubscribeOption) (*Subscription, error) {
	if c == nil || c.CachedInfo() == nil {
		return nil, invalid("consumer", "is nil, or has no info; get it from a stream, or from js.Consumer")
	}
	info := c.CachedInfo()
	return Subscribe(ctx, js, info.Stream, info.Name, opts...)
}

const (
	// infoLeast and infoMost bound the timeout of one request for a consumer's info, which is half of the call's remaining wait.
	// infoPause is the time between two requests.
	infoLeast, infoMost = time.Second, 3 * time.Second
	infoPause           = 250 * time.Millisecond
	// errCodeUnavailable is the server's code for a cluster without a leader.
	errCodeUnavailable = 10008
)

// readInfo requests a consumer's info. Until ctx ends, which must have a deadline, it repeats the request if there is no leader, or if
// the response may have been lost with a leader.
func readInfo(ctx context.Context, js jetstream.JetStream, stream, consumer string) (*jetstream.ConsumerInfo, error) {
	subject := wire.ConsumerSubject(apiPrefix(js), "INFO", stream, consumer)
	before, begun := js.Conn().LastError(), time.Now()
	until, _ := ctx.Deadline()
	var api *jetstream.APIError
	var err error
	for again := true; again; again = watch.Sleep(ctx, infoPause) == nil {
		once, cancel := context.WithTimeout(ctx, min(max(time.Until(until)/2, infoLeast), infoMost))
		c, tryErr := js.Consumer(once, stream, consumer)
		cancel()
		if tryErr == nil {
			return c.CachedInfo(), nil
		}
		if err == nil || ctx.Err() == nil { // otherwise the previous error says more
			err = tryErr
		}
		if refused := transport.Refusal(js.Conn(), before, subject); refused != nil {
			return nil, refused
		}
		if !errors.Is(err, context.DeadlineExceeded) && (!errors.As(err, &api) || api.ErrorCode != errCodeUnavailable) {
			break
		}
	}
	switch {
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		return nil, fmt.Errorf("jetpull: consumer %q on stream %q delivers by push; create it without DeliverSubject: %w", consumer, stream, ErrNotPull)
	case errors.As(err, &api):
		return nil, fmt.Errorf("jetpull: consumer %q on stream %q: %w", consumer, stream, err)
	}
	return nil, requestError(js.Conn(), before, begun, "consumer info", subject, err)
}

// Stream returns the name of the stream that the Subscription's consumer is on.
func (s *Subscription) Stream() string { return s.stream }

// Consumer returns the name of the Subscription's consumer.
func (s *Subscription) Consumer() string { return s.consumer }

// Info asks the server for the consumer's current state. Without a deadline on ctx it waits 5 s.
func (s *Subscription) Info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	return readInfo(ctx, s.js, s.stream, s.consumer)
}

// Close ends all calls on the Subscription with [ErrClosed], hands messages that they did not return back to the server,
// gives up a pin, and waits until all goroutines of the Subscription have stopped. If ctx ends first, Close returns ctx's
// error and the rest continues in the background, except for the pin: another Close gives it up, or it is lost after the
// priority timeout. Close may be called again. Messages that were returned can still be acknowledged. A handler may call Close.
// A callback of [OnPin], [OnUnpin], [OnError] or [OnEvent], and the handler of a [Logger], must call it on another
// goroutine, because Close waits for them.
//
// With ack policy none, nothing can be handed back: messages that were read ahead, and messages that the server sends while
// its pulls end, are lost, and Stats.Dropped counts them. It also counts gaps in the consumer's delivery numbers:
// deliveries that were lost with a connection, and deliveries to other clients.
func (s *Subscription) Close(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	if err := s.driver.Close(ctx, ErrClosed); err != nil {
		return err
	}
	if s.nc.IsConnected() {
		ctx, cancel := context.WithTimeout(ctx, closeMost)
		defer cancel()
		_ = s.nc.FlushWithContext(ctx)
		if len(s.openRuns()) == 0 { // otherwise the last run gives up the pin, after it has settled its messages
			var groups []string // calls can have other groups than the default
			s.driver.Do(func(e *pull.Engine, _ pull.At) { groups = e.PinnedGroups() })
			for _, group := range groups {
				s.giveUpPin(ctx, group)
			}
		}
	}
	defer s.watcher.timer.Stop()
	return s.driver.Stop(ctx)
}

// gaps counts deliveries that never arrived, by the consumer's delivery numbers. The goroutine that reads owns next.
type gaps struct {
	next   uint64
	missed atomic.Uint64
}

// note records the number of a delivery. A number below next means a recreated consumer, or a server that crashed.
func (g *gaps) note(n uint64) {
	if n > g.next {
		g.missed.Add(n - g.next)
	}
	if n > 0 {
		g.next = n + 1
	}
}

// Missed returns how many deliveries have not arrived here since Subscribe, although later ones have. It counts for consumers with
// the pinned_client policy or ack policy none; for others it is 0. The deliveries were lost with a connection or a server, or went to
// another client. The server redelivers them after AckWait, behind newer messages, but not with ack policy none. A delivery is counted
// as missed before the message after it is returned. If the policy is edited, earlier deliveries to other clients count too.
func (s *Subscription) Missed() uint64 { return s.gaps.missed.Load() }

// checkTarget returns an error for a js, stream or consumer that no call can use.
func checkTarget(ctx context.Context, js jetstream.JetStream, stream, consumer string) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if js == nil {
		return invalid("js", "is nil; make one with jetstream.New")
	}
	for _, name := range [][2]string{{"stream", stream}, {"consumer", consumer}} {
		if name[1] == "" || strings.ContainsAny(name[1], " \t\r\n\f.*>/\\") {
			return invalid(name[0], "%q is not a %s name: it must not be empty nor contain spaces, tabs, dots, slashes, * or >", name[1], name[0])
		}
	}
	return nil
}

// check returns an error for a Subscription or ctx that no call can use.
func (s *Subscription) check(ctx context.Context) error {
	if s.driver == nil {
		return fmt.Errorf("%w: this Subscription was not returned by Subscribe", ErrClosed)
	}
	return checkContext(ctx)
}

func checkContext(ctx context.Context) error {
	if ctx == nil {
		return invalid("ctx", "is nil; use context.Background()")
	}
	return nil
}

// apiPrefix returns the prefix of the API subjects that js uses.
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
