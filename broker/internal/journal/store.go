// Package journal stores a broker's data in JetStream. Every response of the broker is backed by data on disk.
//
// The messages stream has one message per broadcast, on a subject made of channel and message ID. The jobs stream has a subject for each job whose
// state has ever changed. It holds one message, the job's record. A record is published with the sequence of the record that it replaces. Every node
// reads the headers of all messages, and all records, into an index in memory. The index may be behind the streams. A write that is based on an
// outdated index fails, and is decided again.
//
// A [Writer] stores a message once, even if the connection fails, and reports when it is on disk. [Link] and [Quorum] report when requests are
// futile.
package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/admin"
	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
	"github.com/jetpull/jetpull/broker/internal/shards"
	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/registry"
	"github.com/jetpull/jetpull/internal/systems"
)

// Config configures a store.
type Config struct {
	// Name is the prefix of all stream names and subjects, so that several brokers can share a NATS server.
	Name string
	// Replicas is the number of copies of each stream.
	Replicas int
	// Shared specifies whether other processes use the streams too. If so, this node looks up unknown objects in the store, and only one node at a time
	// makes the callbacks of a channel.
	Shared bool
	// HashTokens specifies whether to store the tokens of producers and channels as hashes.
	HashTokens bool
	// Disk syncs writes to disk before the broker answers them. Nil leaves that to the server.
	Disk jsstream.Disk
	// Progress is called repeatedly while [Open] reads the stored data. Nil means no calls.
	Progress func()
	// Logger gets errors that cannot be returned to a caller.
	Logger *slog.Logger
}

func (c Config) registry() string { return c.Name + systems.BrokerRegistry }
func (c Config) messages() string { return c.Name + systems.BrokerMessages }
func (c Config) jobs() string     { return c.Name + systems.BrokerJobs }
func (c Config) attempts() string { return c.Name + systems.BrokerAttempts }
func (c Config) ticks() string    { return c.Name + systems.BrokerTicks }

func (c Config) messageSubject(channelToken, id string) string {
	return c.Name + ".m." + channelToken + "." + id
}

func (c Config) scheduleSubject(channelToken, id string) string {
	return c.Name + ".s." + channelToken + "." + id
}

// eitherSubject returns a subject that matches those of a message and of its schedule.
func (c Config) eitherSubject(channelToken, id string) string {
	return c.Name + ".*." + channelToken + "." + id
}

func (c Config) jobSubject(consumer uint32, seq string) string {
	return c.Name + ".j." + strconv.FormatUint(uint64(consumer), 10) + "." + seq
}

// base has the streams and the index, for all parts of the store.
type base struct {
	cfg Config
	nc  *nats.Conn
	js  jetstream.JetStream
	// link is the connection's state.
	link   *Link
	reader *jsstream.Reader
	quorum *Quorum
	log    *slog.Logger

	reg            *registry.Registry
	Directory      *admin.Directory
	replayTable    *bulk.Table
	registryStream jetstream.Stream
	messageStream  jetstream.Stream
	jobStream      jetstream.Stream
	attemptStream  jetstream.Stream
	registryWrites *Writer // used for its sync only
	messageWrites  *Writer
	jobWrites      *Writer
	attemptWrites  *Writer         // without a sync
	Index          *jobindex.Index // of messages and jobs
	messageFeed    jsstream.Feed
	jobFeed        jsstream.Feed
	// messagesSeen and jobsSeen record how far this process has read the streams.
	messagesSeen *jsstream.Progress
	jobsSeen     *jsstream.Progress
	// referred is the highest sequence of a message to which a record or a consumer refers.
	referred atomic.Uint64
	// recorded is the highest sequence of a record that this process has stored. It may not have read the record yet.
	recorded  atomic.Uint64
	refilling chan struct{} // full while refill runs
}

// Store is a broker's data in JetStream. Its parts serve different callers.
type Store struct {
	*base
	Messages *messages
	Jobs     *jobs
	Replays  *replays
	Shards   *shards.Part

	stop    context.CancelFunc
	running sync.WaitGroup
}

// Open creates missing streams and reads all data into memory. When it returns, the store knows everything that was stored before the call. The
// caller remains the owner of the connection.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config) (*Store, error) {
	s := newStore(js, cfg)
	if err := s.makeStreams(ctx); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	var watch func(context.Context)
	s.link, watch = WatchLink(s.nc)
	s.running.Go(func() { watch(run) })
	s.reader = jsstream.NewReader(js, s.cfg.Replicas, s.link.Await)
	s.Shards = shards.New(shards.Sharing{
		JS: js, Link: s.link, Shared: s.cfg.Shared, Ticks: s.cfg.ticks(), TickSubject: s.cfg.Name + ".t", TakeOverSubject: s.cfg.Name + ".x.dispatch",
		UpToNow: s.upToNow, Log: s.log,
	})
	s.makeWriters()
	s.makeFeeds()
	s.Directory = admin.New(admin.Config{
		Registry: s.reg, Writes: s.registryWrites, Messages: s.Messages, Known: s.consumerKnown, Removed: s.consumerRemoved, Ready: s.Ready,
		Now: s.Index.Clock.Now, Shared: s.cfg.Shared, HashTokens: s.cfg.HashTokens,
	})
	s.replayTable = bulk.NewTable(s.reg, replayPrefix, maxReplays, earlierReplay)
	s.Replays.Table = s.replayTable
	// Without this, each claim of an old job would wait for a sync of its message, and the first write to a stream for a sync of all its blocks.
	err := jsstream.SyncStored(ctx, s.cfg.Disk, s.registryStream, s.attemptStream, s.messageStream, s.jobStream)
	if err == nil {
		err = jsstream.FollowClock(ctx, run, &s.running, js, s.cfg.messages(), s.Index.Clock)
	}
	if err == nil {
		err = s.load(ctx, run)
	}
	if err != nil {
		stop()
		s.running.Wait()
		return nil, err
	}
	if s.cfg.Shared {
		s.running.Go(func() { s.quorum.Watch(run) })
	}
	return s, nil
}

// newStore returns a store without streams.
func newStore(js jetstream.JetStream, cfg Config) *Store {
	b := &base{
		cfg: cfg, nc: js.Conn(), js: js, log: cfg.Logger, messagesSeen: jsstream.NewProgress(), jobsSeen: jsstream.NewProgress(),
		refilling: make(chan struct{}, 1),
	}
	b.Index = jobindex.New()
	b.quorum = &Quorum{js: js, created: map[string]time.Time{}, alone: cfg.Replicas <= 1, log: cfg.Logger}
	m := &messages{base: b, cache: newPayloadCache()}
	return &Store{base: b, Messages: m, Jobs: &jobs{b, m}, Replays: &replays{base: b}}
}

func (s *Store) makeWriters() {
	synced := func(stream string) *Writer {
		w := NewWriter(s.js, s.link, stream)
		w.Replaced, w.Disk = s.quorum.Replaced, s.cfg.Disk
		return w
	}
	s.registryWrites, s.messageWrites, s.jobWrites = synced("KV_"+s.cfg.registry()), synced(s.cfg.messages()), synced(s.cfg.jobs())
	s.attemptWrites = NewWriter(s.js, s.link, s.cfg.attempts())
	s.messageWrites.FailFast = true
	for w, stream := range map[*Writer]jetstream.Stream{s.messageWrites: s.messageStream, s.jobWrites: s.jobStream} {
		w.Last = func(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
			return s.Last(ctx, stream, subject)
		}
	}
}

// makeFeeds configures how the streams of messages and jobs are read.
func (s *Store) makeFeeds() {
	both := jsstream.Feed{JS: s.js, Reader: s.reader, Shared: s.cfg.Shared, Reading: s.cfg.Progress, Log: s.log}
	s.messageFeed, s.jobFeed = both, both
	f := &s.messageFeed
	f.Stream, f.HeadersOnly, f.Seen, f.See, f.Known = s.messageStream, true, s.messagesSeen, s.Messages.seeMessage, s.known
	f = &s.jobFeed
	f.Stream, f.Seen, f.See, f.Known = s.jobStream, s.jobsSeen, s.Jobs.seeRecord, s.recorded.Load
}

func (s *Store) makeStreams(ctx context.Context) error {
	kv, stream, err := jsstream.MakeBucket(ctx, s.js, jetstream.StreamConfig{
		Name: s.cfg.registry(), Description: "broker: producers, channels and consumers", Storage: jetstream.FileStorage, Replicas: s.cfg.Replicas,
		AllowDirect: true, Duplicates: 2 * time.Minute,
	})
	if err != nil {
		return err
	}
	s.registryStream = stream
	s.reg = registry.New(registry.Config{JS: s.js, KV: kv, Stream: stream, Leader: s.base, Shared: s.cfg.Shared, Log: s.log})
	open := func(into *jetstream.Stream, c jetstream.StreamConfig) {
		if err == nil {
			c.Storage, c.Replicas, c.AllowDirect, c.Duplicates = jetstream.FileStorage, s.cfg.Replicas, true, 100*time.Millisecond
			*into, err = jsstream.Make(ctx, s.js, c)
		}
	}
	open(&s.messageStream, jetstream.StreamConfig{
		Name: s.cfg.messages(), Subjects: []string{s.cfg.Name + ".m.>", s.cfg.Name + ".s.>"}, AllowMsgSchedules: true, AllowRollup: true,
		Description: "broker: messages and schedules",
	})
	open(&s.jobStream, jetstream.StreamConfig{
		Name: s.cfg.jobs(), Subjects: []string{s.cfg.Name + ".j.>"}, MaxMsgsPerSubject: 1, Description: "broker: records of jobs",
	})
	open(&s.attemptStream, jetstream.StreamConfig{
		Name: s.cfg.attempts(), Subjects: []string{s.cfg.Name + ".a.>"}, MaxMsgsPerSubject: 1, Description: "broker: attempts at push jobs",
	})
	if err != nil {
		return err
	}
	for _, stream := range []jetstream.Stream{s.messageStream, s.jobStream} {
		info := stream.CachedInfo()
		s.quorum.created[info.Config.Name] = info.Created
	}
	if s.cfg.Shared {
		_, err = jsstream.Make(ctx, s.js, jetstream.StreamConfig{
			Name: s.cfg.ticks(), Subjects: []string{s.cfg.Name + ".t"}, MaxMsgs: 1,
			Description: "broker: signs of life of the nodes", Storage: jetstream.FileStorage, Replicas: s.cfg.Replicas,
		})
	}
	return err
}

// load reads the registry, then the messages, then the records, so that most entries find the objects to which they refer. After that, it keeps
// following all three.
func (s *Store) load(ctx, run context.Context) error {
	if err := s.checkMarks(ctx, run); err != nil {
		return err
	}
	if err := s.reg.Open(ctx, run, &s.running, s.reader); err != nil {
		return err
	}
	if err := s.Messages.listen(run); err != nil {
		return err
	}
	if err := jsstream.Follow(ctx, run, &s.running, s.messageFeed); err != nil {
		return err
	}
	if err := jsstream.Follow(ctx, run, &s.running, s.jobFeed); err != nil {
		return err
	}
	return s.refill(ctx)
}

// Close stops following the streams. Unsent writes fail. Own must have returned before.
func (s *Store) Close() {
	for _, w := range []*Writer{s.registryWrites, s.messageWrites, s.jobWrites, s.attemptWrites} {
		w.close()
	}
	s.stop()
	s.running.Wait()
}

// Last is [jsstream.Reader.Last], but it does not trust "not found" from a leader without a majority, because another leader may already exist.
func (s *base) Last(ctx context.Context, stream jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	raw, err := s.reader.Last(ctx, stream, subject)
	return raw, s.believed(err)
}

// AskLeader is like Last, but always asks the stream's leader.
func (s *base) AskLeader(ctx context.Context, stream, subject string) (*jetstream.RawStreamMsg, error) {
	raw, err := s.reader.AskLeader(ctx, stream, subject)
	return raw, s.believed(err)
}

func (s *base) believed(err error) error {
	if lost := s.quorum.Err(); lost != nil && errors.Is(err, domain.ErrNotFound) {
		return lost
	}
	return err
}

// Ready returns why the store cannot serve requests now, or nil.
func (s *Store) Ready() error {
	// Writes are refused until the link has noticed a new connection, a moment after it is made.
	if !s.nc.IsConnected() || s.link.Down() != nil {
		return fmt.Errorf("%w: not connected to NATS (%s)", domain.ErrUnavailable, s.nc.Status())
	}
	return cmp.Or(s.quorum.Err(), s.messageWrites.NoSpace(), s.jobWrites.NoSpace(), s.attemptWrites.NoSpace(), s.failure())
}

// Recordable returns why the outcome of a callback cannot be stored now, or nil.
func (s *Store) Recordable() error {
	return cmp.Or(s.link.Down(), s.quorum.Err(), s.jobWrites.NoSpace(), s.failure())
}

// failure returns why writes can no longer be confirmed as on disk, or nil.
func (s *Store) failure() error {
	return cmp.Or(s.registryWrites.Failure(), s.messageWrites.Failure(), s.jobWrites.Failure())
}

func (s *Store) consumerKnown(c domain.Consumer) {
	s.noteSequence(c.Since)
	s.Index.PutConsumer(domain.SubjectToken(c.Channel), c)
}

func (s *Store) consumerRemoved(c domain.Consumer) {
	s.replayTable.Forget(replayGroup(c.Number))
	s.Index.RemoveConsumer(c.Number)
}
