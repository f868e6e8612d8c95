package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/internal/wire"
)

// Set is a stream that is divided into partitions. Its methods may be called from any number of goroutines.
type Set struct {
	js     jetstream.JetStream
	stream string
	cfg    Config
	api    string // the prefix of API subjects
	resets bool   // the server can reset consumers
	mu     sync.Mutex
	stats  Stats // guarded by mu
}

// Stats are counters of a Set in this process since it was opened, except for Owned, which is a gauge.
type Stats struct {
	// Owned is the number of partitions that members in this process own now.
	Owned int
	// Assigned and Revoked count the partitions that members in this process got and lost.
	Assigned, Revoked uint64
	// Takeovers counts the partitions that members in this process got although the owner had not released them. Resets counts the consumers that
	// they reset, because messages were unacknowledged when the owner changed.
	Takeovers, Resets uint64
	// Lost counts how often members in this process lost their membership. Refused counts failed attempts to join, for example because a permission
	// is missing.
	Lost, Refused uint64
}

// Stats returns the counters.
func (s *Set) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

func (s *Set) count(change func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}

// Config returns the set's configuration.
func (s *Set) Config() Config { return s.cfg }

// Stream returns the name of the stream.
func (s *Set) Stream() string { return s.stream }

// Open returns the Set of a stream. It creates the bucket and the consumers that are missing, and updates AckWait, MaxAckPending and TTL of existing
// ones. It returns an error if the stream's subjects have no partition at the place of {partition} or another number of partitions, if the set was
// created with another configuration, if an interest stream lacks a consumer of the set, because such a stream keeps no message of that partition,
// and if the server is older than 2.11. It returns [ErrHasMembers] if the set has members, and another TTL.
func Open(ctx context.Context, js jetstream.JetStream, stream string, cfg Config) (*Set, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	s, err := newSet(ctx, js, stream, cfg)
	if err != nil {
		return nil, err
	}
	on, infos, err := s.infos(ctx)
	if err == nil {
		err = s.checkStream(ctx, on, infos)
	}
	if err == nil {
		err = s.build(ctx, on.CachedInfo(), infos)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Load returns a Set by its name, after any process has opened it. It creates and changes nothing.
func Load(ctx context.Context, js jetstream.JetStream, name string) (*Set, error) {
	s, err := newSet(ctx, js, "", Config{Name: name})
	if err != nil {
		return nil, err
	}
	made, err := s.made(ctx)
	if err != nil {
		return nil, err
	}
	s.stream, s.cfg = made.Stream, made.Config
	return s, nil
}

// newSet returns a Set without checking that it exists.
func newSet(ctx context.Context, js jetstream.JetStream, stream string, cfg Config) (s *Set, err error) {
	s = &Set{js: js, stream: stream, cfg: cfg}
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	s.api = wire.APIPrefix(js.Options().APIPrefix, js.Options().Domain)
	s.resets, err = checkServer(js.Conn().ConnectedServerVersion())
	return s, err
}

// check returns an error for a Set or ctx that no method can use.
func (s *Set) check(ctx context.Context) error {
	return cmp.Or(
		invalidIf(ctx == nil, "ctx is nil; use context.Background()"),
		invalidIf(s.js == nil, "js is nil, or the Set was not returned by Open or Load"),
	)
}

// checkServer refuses a server that is too old, and reports whether it can reset consumers.
func checkServer(version string) (resets bool, err error) {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false, fmt.Errorf("partition: the version of the server is %q: connect first", version)
	}
	if wire.IsOld(version) {
		return false, fmt.Errorf("partition: server %s has no pinned priority groups: use 2.11 or later", version)
	}
	return major > 2 || minor >= 14, nil
}

// Consume makes this process a member of the set until ctx ends. It runs h for the messages of the partitions that the member owns. When members join
// or leave, it takes or releases partitions. Each call is a separate member, even within a process.
//
// When ctx ends, Consume hands back the messages that no handler has started, waits for the running handlers, and releases its partitions. It cancels
// the context of a handler that runs for longer than DrainTimeout. It returns when the last handler has returned; until then no other member gets the
// handler's partition. It returns an error if the bucket or a consumer was deleted, the set was resized or opened with another TTL, or an option is
// not valid. A lost membership does not end Consume: the member joins again.
func (s *Set) Consume(ctx context.Context, h jetpull.Handler, opts ...Option) error {
	o, err := newOptions(opts)
	if err := cmp.Or(s.check(ctx), invalidIf(h == nil, "handler is nil; give the function that handles a message"), err); err != nil {
		return err
	}
	for err := s.probe(ctx); err != nil && ctx.Err() == nil; err = s.probe(ctx) {
		if errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		s.count(func(c *Stats) { c.Refused++ })
		o.logger.Warn("partition: this member owns nothing, and tries to join again", "set", s.cfg.Name, "member", o.name, "error", err)
		_ = watch.Sleep(ctx, retryPause)
	}
	m := newMember(s, o, h)
	all := s.subject("")
	if strings.HasPrefix(all, "$JS.") { // the prefix of a domain, which the server removes before it delivers
		all = "$KV." + s.bucketName() + "."
	}
	sub, err := s.js.Conn().Subscribe(all+">", func(msg *nats.Msg) { m.hear(strings.TrimPrefix(msg.Subject, all), msg.Data) })
	if err != nil {
		return fmt.Errorf("partition: subscribe to %s>: %w", all, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	return m.run(ctx)
}

// Option is an option of [Set.Consume]. If an option is given twice, the last one applies; options of [With] add up.
type Option func(*options)

type options struct {
	name               string
	onAssign, onRevoke func(partition int, why string)
	consume            []jetpull.ConsumeOption
	logger             *slog.Logger
}

// Member sets the name of this member in [Set.Status] and in reasons: 1 to 64 letters, digits, '-' and '_'. Members with the same name are separate
// members. The default consists of the host's name, the process ID and a random part.
func Member(name string) Option { return func(o *options) { o.name = name } }

// OnAssign sets a function that is called when this member gets a partition, before the partition's first message is handled. why is the reason, for
// a log. Calls for different partitions can run at the same time. None by default.
func OnAssign(f func(partition int, why string)) Option { return func(o *options) { o.onAssign = f } }

// OnRevoke sets a function that is called when this member loses a partition, after the last handler of the partition has returned. Unless the
// membership was lost, no other member gets the partition before it returns. Calls for different partitions can run at the same time. None by
// default.
func OnRevoke(f func(partition int, why string)) Option { return func(o *options) { o.onRevoke = f } }

// Logger sets the logger of the member, and of the Consume of each partition unless [With] has another [jetpull.Logger]. The member logs partitions
// that it gets and loses at level info, and why it owns none at level warn. The default is [slog.Default].
func Logger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// With adds options for the Consume of each partition. Options that would break the guarantees of the set do not compile. Each option applies per
// partition: with Concurrency(2), a member runs at most two handlers for each of its partitions.
func With(opts ...jetpull.HandlerOption) Option {
	return func(o *options) {
		for _, opt := range opts {
			o.consume = append(o.consume, opt)
		}
	}
}

var notInNames = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

func newOptions(opts []Option) (o options, err error) {
	host, _ := os.Hostname()
	id := nuid.Next()
	o = options{onAssign: func(int, string) {}, onRevoke: func(int, string) {}, logger: slog.Default()}
	o.name = fmt.Sprintf("%.30s-%d-%s", notInNames.ReplaceAllString(host, "-"), os.Getpid(), id[len(id)-6:])
	for _, f := range opts {
		if f == nil {
			return o, invalid("an Option is nil; use one of the package's options")
		}
		f(&o)
	}
	return o, cmp.Or(
		invalidIf(!validName(o.name), "Member %q: use 1 to 64 letters, digits, '-' and '_'", o.name),
		invalidIf(o.logger == nil, "Logger: the logger is nil; use slog.New(slog.DiscardHandler) to discard the log"),
		invalidIf(o.onAssign == nil || o.onRevoke == nil, "OnAssign and OnRevoke: the function is nil; leave the option out"),
	)
}
