package jsstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/groupsync"
)

// Config says how a store keeps its data.
type Config struct {
	// Name is the front part of all stream names and subjects, so that several
	// brokers can share one NATS. Default "broker".
	Name string
	// Replicas is the number of copies of each stream. Default 1.
	Replicas int
	// CacheBytes bounds the payloads kept in memory. Default 16 MiB.
	CacheBytes int
	// Shared says that other processes use the streams too: what is not known here is
	// looked for there, and one of them at a time makes the callbacks of a channel.
	Shared bool
	// SyncDir is the store folder of the embedded server, if writes are to be
	// synced here before they are answered. Empty leaves it to the server.
	SyncDir string
	// OnSync is told of each file that was synced here, with the size that it
	// had when the sync began, before anybody is told that it is on disk. Tests
	// play a power failure with it. Default: nothing.
	OnSync func(path string, size int64)
	// Logger gets what cannot be returned to a caller. Default: discard.
	Logger *slog.Logger

	// fsync has the disk fail in tests.
	fsync func(f *os.File) error
}

func (c Config) disk() groupsync.Disk { return groupsync.Disk{Note: c.OnSync, Fsync: c.fsync} }

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "broker"
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 16 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) registry() string { return c.Name + "_registry" }
func (c Config) messages() string { return c.Name + "_messages" }
func (c Config) jobs() string     { return c.Name + "_jobs" }
func (c Config) attempts() string { return c.Name + "_attempts" }

func (c Config) ticks() string { return c.Name + "_ticks" }

func (c Config) tickSubject() string     { return c.Name + ".t" }
func (c Config) takeOverSubject() string { return c.Name + ".x.dispatch" }

func (c Config) messageSubject(channelToken, id string) string {
	return c.Name + ".m." + channelToken + "." + id
}

func (c Config) scheduleSubject(channelToken, id string) string {
	return c.Name + ".s." + channelToken + "." + id
}

// eitherSubject matches both of them.
func (c Config) eitherSubject(channelToken, id string) string {
	return c.Name + ".*." + channelToken + "." + id
}

func (c Config) jobSubject(consumer uint32, seq string) string {
	return c.Name + ".j." + strconv.FormatUint(uint64(consumer), 10) + "." + seq
}

// largeLoad is how many entries, read at the start, leave garbage behind that is
// worth giving back at once: as much as the index takes, and nothing else would
// claim it for a while.
const largeLoad = 100_000

// Store is a broker.Store on JetStream.
type Store struct {
	cfg Config
	nc  *nats.Conn
	js  jetstream.JetStream
	// link is the connection's state.
	link *link
	log  *slog.Logger

	reg            *registry
	messageStream  jetstream.Stream
	jobStream      jetstream.Stream
	attemptStream  jetstream.Stream
	registryWrites *committer // only for its sync
	messageWrites  *committer
	jobWrites      *committer
	attemptWrites  *committer // without a sync
	index          *index
	*shards
	*reader
	quorum quorum
	cache  *payloadCache

	events atomic.Pointer[broker.Events]
	// messagesSeen and jobsSeen are how far the streams were read.
	messagesSeen progress
	jobsSeen     progress

	stop    context.CancelFunc
	running sync.WaitGroup
}

var _ broker.Store = (*Store)(nil)

// Open makes the streams if there are none and reads everything into memory.
// It returns when the store knows all that was stored before the call. The
// connection stays the caller's.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	s := &Store{cfg: cfg, nc: js.Conn(), js: js, log: cfg.Logger, index: newIndex(), cache: newPayloadCache(cfg.CacheBytes)}
	s.messagesSeen.init()
	s.jobsSeen.init()
	s.index.ready = s.jobQueued
	if err := s.makeStreams(ctx); err != nil {
		return nil, err
	}
	if err := s.probe(ctx); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	var watch func(context.Context)
	s.link, watch = watchLink(s.nc)
	s.running.Go(func() { watch(run) })
	s.reader = &reader{nc: s.nc, js: js, link: s.link, replicas: cfg.Replicas}
	s.shards = &shards{
		cfg: cfg, nc: s.nc, js: js, link: s.link, news: &s.jobsSeen, log: s.log, node: broker.NewID(), begin: time.Now(),
	}
	s.makeWriters()
	err := s.syncStored(ctx)
	if err == nil {
		err = s.load(ctx, run)
	}
	if err != nil {
		stop()
		s.running.Wait()
		return nil, err
	}
	if s.cfg.Shared && s.cfg.Replicas > 1 {
		s.running.Go(func() { s.watchQuorum(run) })
	}
	if s.messagesSeen.reached()+s.jobsSeen.reached() > largeLoad {
		debug.FreeOSMemory()
	}
	return s, nil
}

func (s *Store) makeWriters() {
	s.registryWrites = newCommitter(s.nc, s.link, "KV_"+s.cfg.registry(), s.cfg)
	s.messageWrites = newCommitter(s.nc, s.link, s.cfg.messages(), s.cfg)
	s.jobWrites = newCommitter(s.nc, s.link, s.cfg.jobs(), s.cfg)
	unsynced := s.cfg
	unsynced.SyncDir = ""
	s.attemptWrites = newCommitter(s.nc, s.link, s.cfg.attempts(), unsynced)
	s.messageWrites.hasty = true
	s.messageWrites.last = func(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
		return s.last(ctx, s.messageStream, subject)
	}
	s.jobWrites.last = func(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
		return s.last(ctx, s.jobStream, subject)
	}
}

// syncStored brings to the disk what an earlier process may have left in memory,
// and remembers how much that is: else each claim of an old job would wait for a
// sync of its message, and the first write to a stream for all of its blocks.
func (s *Store) syncStored(ctx context.Context) error {
	if s.cfg.SyncDir == "" {
		return nil
	}
	// Looked at before the sync, which may miss what comes meanwhile.
	messages, err := infoOf(ctx, s.messageStream)
	if err != nil {
		return fmt.Errorf("read the state of the messages stream: %w", err)
	}
	jobs, err := infoOf(ctx, s.jobStream)
	if err != nil {
		return fmt.Errorf("read the state of the jobs stream: %w", err)
	}
	s.registryWrites.sync.StartAt(0)
	s.messageWrites.sync.StartAt(messages.State.LastSeq)
	s.jobWrites.sync.StartAt(jobs.State.LastSeq)
	if err := s.cfg.disk().Tree(s.cfg.SyncDir); err != nil {
		return fmt.Errorf("sync the store folder: %w", err)
	}
	return nil
}

func (s *Store) makeStreams(ctx context.Context) error {
	var kv jetstream.KeyValue
	err := insist(ctx, func(ctx context.Context) (err error) {
		kv, err = s.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: s.cfg.registry(), Replicas: s.cfg.Replicas, Storage: jetstream.FileStorage,
			Description: "broker: producers, channels and consumers",
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("make the registry bucket %s: %w", s.cfg.registry(), err)
	}
	s.reg = newRegistry(kv, s.consumerChanged)
	s.messageStream, err = s.makeStream(ctx, jetstream.StreamConfig{
		Name: s.cfg.messages(), Subjects: []string{s.cfg.Name + ".m.>", s.cfg.Name + ".s.>"},
		Description: "broker: messages and schedules", Storage: jetstream.FileStorage, Replicas: s.cfg.Replicas,
		AllowDirect: true, AllowMsgSchedules: true, AllowRollup: true,
		Duplicates: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	s.jobStream, err = s.makeStream(ctx, jetstream.StreamConfig{
		Name: s.cfg.jobs(), Subjects: []string{s.cfg.Name + ".j.>"}, MaxMsgsPerSubject: 1,
		Description: "broker: records of jobs", Storage: jetstream.FileStorage, Replicas: s.cfg.Replicas,
		AllowDirect: true, Duplicates: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	s.attemptStream, err = s.makeStream(ctx, jetstream.StreamConfig{
		Name: s.cfg.attempts(), Subjects: []string{s.cfg.Name + ".a.>"}, MaxMsgsPerSubject: 1,
		Description: "broker: attempts at push jobs", Storage: jetstream.FileStorage, Replicas: s.cfg.Replicas,
		AllowDirect: true, Duplicates: 100 * time.Millisecond,
	})
	if err == nil && s.cfg.Shared {
		_, err = s.makeStream(ctx, jetstream.StreamConfig{
			Name: s.cfg.ticks(), Subjects: []string{s.cfg.tickSubject()}, MaxMsgs: 1,
			Description: "broker: signs of life of the nodes", Storage: jetstream.FileStorage, Replicas: s.cfg.Replicas,
		})
	}
	if err != nil {
		return err
	}
	return s.dropFeeds(ctx)
}

func (s *Store) makeStream(ctx context.Context, cfg jetstream.StreamConfig) (stream jetstream.Stream, err error) {
	err = insist(ctx, func(ctx context.Context) error {
		stream, err = s.js.CreateOrUpdateStream(ctx, cfg)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make the stream %s: %w", cfg.Name, err)
	}
	return stream, nil
}

func infoOf(ctx context.Context, stream jetstream.Stream) (info *jetstream.StreamInfo, err error) {
	err = insist(ctx, func(ctx context.Context) error {
		info, err = stream.Info(ctx)
		return err
	})
	return info, err
}

// load reads the registry, then the messages, then the records, so that most
// news finds what it belongs to, and goes on following all three.
func (s *Store) load(ctx, run context.Context) error {
	wait, err := s.reg.watch(run, s.warnEntry)
	if err != nil {
		return err
	}
	s.running.Go(wait)
	if err := s.listen(run); err != nil {
		return err
	}
	if err := s.follow(ctx, run, s.messageStream, true, &s.messagesSeen, s.seeMessage); err != nil {
		return err
	}
	if err := s.follow(ctx, run, s.jobStream, false, &s.jobsSeen, s.seeRecord); err != nil {
		return err
	}
	for _, c := range s.Consumers("") {
		s.index.counts(c.Number) // the first count looks at every job
	}
	return nil
}

// Close stops following the streams. Writes that are not sent yet fail. Own must have
// ended before.
func (s *Store) Close() {
	for _, c := range s.committers() {
		c.close()
	}
	s.stop()
	s.running.Wait()
}

// Notify implements broker.Store.
func (s *Store) Notify(e broker.Events) { s.events.Store(&e) }

// Ready implements broker.View.
func (s *Store) Ready() error {
	// Nothing is written before the link has noticed a connection, which is a moment
	// after it is there.
	if !s.nc.IsConnected() || s.link.current.Load() != nil {
		return fmt.Errorf("%w: not connected to NATS (%s)", broker.ErrUnavailable, s.nc.Status())
	}
	if err := s.quorum.err(); err != nil {
		return err
	}
	for _, c := range s.committers() {
		if err := c.noRoom(); err != nil {
			return err
		}
	}
	return s.diskFailure()
}

// Recordable implements broker.Shards.
func (s *Store) Recordable() error {
	if o := s.link.current.Load(); o != nil {
		return fmt.Errorf("%w: not connected to NATS since %s", broker.ErrUnavailable, o.since.Format(time.TimeOnly))
	}
	if err := s.quorum.err(); err != nil {
		return err
	}
	if err := s.jobWrites.noRoom(); err != nil {
		return err
	}
	return s.diskFailure()
}

// diskFailure is why the store confirms nothing any more, or nil.
func (s *Store) diskFailure() error {
	for _, c := range s.committers() {
		if err := c.failure(); err != nil {
			return err
		}
	}
	return nil
}

// MaxPayload implements broker.Broadcasts. The rest of what the server takes is
// left for the headers.
func (s *Store) MaxPayload() int { return int(s.nc.MaxPayload()) - maxEnvelope - 8<<10 }

func (s *Store) consumerChanged(c broker.Consumer, removed bool) {
	var orphans []broker.Job
	if removed {
		s.index.removeConsumer(c.Number)
	} else {
		orphans = s.index.putConsumer(encodeToken(c.Channel), c)
	}
	if e := s.events.Load(); e != nil && e.Consumer != nil {
		e.Consumer(c, removed)
	}
	for _, j := range orphans {
		s.jobChanged(j)
	}
}

func (s *Store) jobChanged(j broker.Job) {
	if e := s.events.Load(); e != nil && e.Job != nil && j.Status != broker.Removed {
		e.Job(j)
	}
}

// jobQueued is called under the index's lock.
func (s *Store) jobQueued(consumer uint32) {
	if e := s.events.Load(); e != nil && e.Queued != nil {
		e.Queued(consumer)
	}
}

// dropFeeds deletes the durables that an older store had for each push consumer.
func (s *Store) dropFeeds(ctx context.Context) error {
	names := s.messageStream.ConsumerNames(ctx)
	var feeds []string
	for name := range names.Name() {
		if strings.HasPrefix(name, "push_") {
			feeds = append(feeds, name)
		}
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("list the consumers of stream %s: %w", s.cfg.messages(), err)
	}
	for _, name := range feeds {
		if err := s.js.DeleteConsumer(ctx, s.cfg.messages(), name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("delete consumer %s of an older broker: %w", name, err)
		}
	}
	return nil
}
