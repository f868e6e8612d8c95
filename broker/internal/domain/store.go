package domain

import (
	"context"
	"time"
)

// Page says which part of a list is asked for. Lists run from the newest to
// the oldest. At most one of After and Before is set; a zero Page is the first.
type Page struct {
	// After asks for what comes after this position, on the older side.
	After *Position
	// Before asks for what comes just before this position, on the newer side.
	Before *Position
	// Limit is the number of items, at least 1.
	Limit int
}

// Position is a place in a list.
type Position struct {
	At  int64  // the item's time or number, by which the list is ordered
	Seq uint64 // tells items of the same At apart
}

// MessageRef is an entry of a list of messages.
type MessageRef struct {
	ID  string
	Seq uint64
}

// StatusCount tells how many jobs of a consumer are in a state.
type StatusCount struct {
	Status JobStatus
	Count  int
	Oldest time.Time // when the first of them got into it
	Newest time.Time // when the last of them got into it
}

// Backlog is what a consumer has to do.
type Backlog struct {
	Consumer               Consumer
	Queued, Inflight, Dead int
	// Oldest is when the oldest message was received that is not worked off; zero: there is none.
	Oldest time.Time
}

// ScheduledCounts tells about the scheduled messages of a channel.
type ScheduledCounts struct {
	Pending    int
	Dispatched int
	Next       time.Time // when the next one is broadcast, zero if there is none
}

// Events are called by a store when something changed here or on another node. They
// must not block.
type Events struct {
	// Job is called with each record of a job, except for removed ones.
	Job func(Job)
	// Consumer is called when a consumer was made, changed or removed.
	Consumer func(c Consumer, removed bool)
	// Queued is called when a push consumer has another job to take.
	Queued func(consumer uint32)
}

// Directory finds producers, channels and consumers, in memory: what another node has
// made is found at once, what it has changed or removed is so here a moment later. The
// Refresh methods look at what is stored first, for those who are about to change it. If the
// store cannot be asked, what is in memory is found; for what is not the error is ErrUnavailable, and not ErrNotFound.
type Directory interface {
	// Producer finds a producer by its ID.
	Producer(ctx context.Context, id string) (Producer, error)
	// RefreshProducer is Producer, after a look at what is stored.
	RefreshProducer(ctx context.Context, id string) (Producer, error)
	// Producers lists all, the newest first.
	Producers() []Producer

	// Channel finds a channel by its ID.
	Channel(ctx context.Context, id string) (Channel, error)
	// RefreshChannel is Channel, after a look at what is stored.
	RefreshChannel(ctx context.Context, id string) (Channel, error)
	// Channels lists all, the newest first.
	Channels() []Channel

	// RefreshAccess finds an access token by its ID, after a look at what is stored.
	RefreshAccess(ctx context.Context, channel, id string) (AccessToken, error)
	// Accesses lists those of a channel, the newest first.
	Accesses(channel string) []AccessToken

	// Consumer finds a consumer of a channel by its ID.
	Consumer(ctx context.Context, channel, id string) (Consumer, error)
	// RefreshConsumer is Consumer, after a look at what is stored.
	RefreshConsumer(ctx context.Context, channel, id string) (Consumer, error)
	// ConsumerByNumber finds a consumer by its number, in memory only.
	ConsumerByNumber(number uint32) (Consumer, bool)
	// Consumers lists those of one channel, or of all if it is empty.
	Consumers(channel string) []Consumer
}

// Registrar changes producers, channels and consumers. IDs are valid UTF-8. A save with
// Revision 0 makes an object; it gets its number, revision and time of creation.
// Otherwise it changes one. Both fail with ErrConflict when the stored revision is not
// the given one.
type Registrar interface {
	// SaveAccess makes or changes an access token.
	SaveAccess(ctx context.Context, t AccessToken) (AccessToken, error)
	// DeleteAccess removes one.
	DeleteAccess(ctx context.Context, t AccessToken) error
	// SaveProducer makes or changes a producer.
	SaveProducer(ctx context.Context, p Producer) (Producer, error)
	// SaveChannel makes or changes a channel.
	SaveChannel(ctx context.Context, c Channel) (Channel, error)
	// SaveConsumer makes or changes a consumer. A new one gets a job for each
	// message that is stored from now on.
	SaveConsumer(ctx context.Context, c Consumer) (Consumer, error)
	// DeleteConsumer removes the consumer and all of its jobs.
	DeleteConsumer(ctx context.Context, c Consumer) error
	// Kept returns once an object that was read with this revision is on disk, as
	// far as the server's settings go: whoever has written it may still wait.
	Kept(ctx context.Context, revision uint64) error
}

// Broadcasts takes what is broadcast, now or later. It is on disk when a call returns,
// as far as the server's settings go.
type Broadcasts interface {
	// Append stores a message under its ID, or fails with ErrDuplicateMessage.
	Append(ctx context.Context, m Message) (Message, error)
	// Schedule stores a message to be broadcast at a time, or fails with
	// ErrDuplicateMessage.
	Schedule(ctx context.Context, m Message, at time.Time) error
	// CancelScheduled fails with ErrNotFound when there is none that is pending.
	CancelScheduled(ctx context.Context, channel, id string) error
	// MaxPayload is the largest payload a message may have.
	MaxPayload() int
}

// Messages finds what was broadcast.
type Messages interface {
	// Message reads a message, whichever node has stored it, and its jobs are
	// known here then.
	Message(ctx context.Context, channel, id string) (Message, error)
	// MessagesAt loads messages by sequence; those that are gone are missing. With
	// ErrUnavailable it returns those that could be read now.
	MessagesAt(ctx context.Context, seqs []uint64) (map[uint64]Message, error)
	// ListMessages returns a page of a channel's messages.
	ListMessages(ctx context.Context, channel string, page Page) ([]MessageRef, error)
	CountMessages(channel string) int
	// Scheduled returns a scheduled message, broadcast or not.
	Scheduled(ctx context.Context, channel, id string) (Scheduled, error)
	// ListScheduled returns a page of a channel's scheduled messages; of those
	// in one state, if it is not 0.
	ListScheduled(channel string, status ScheduledStatus, page Page) []Scheduled
	CountScheduled(channel string) ScheduledCounts
}

// Retention deletes what is done.
type Retention interface {
	// Finished returns up to limit sequences of messages, stored before the
	// given time, of which no job is queued or in flight.
	Finished(before time.Time, limit int) []uint64
	// Prune deletes messages and the records of their jobs.
	Prune(ctx context.Context, seqs []uint64) error
}

// Records keeps the states of jobs.
type Records interface {
	// Job returns a job as it is known here, removed or not, or ErrNotFound. Of one
	// that is settled it may have, as lists do, the state, time and revision only. A
	// job whose message was stored by another node a moment ago is waited for.
	Job(ctx context.Context, id JobID) (Job, error)
	// Refresh is Job, whole, after a look at what is stored if another node may have
	// written it. A state that jobs stay in is on disk when it returns.
	Refresh(ctx context.Context, id JobID) (Job, error)
	// PutJob writes a job's new state. It fails with ErrConflict when the
	// stored revision is not job.Revision; the job as it is now can then be
	// read with Job.
	PutJob(ctx context.Context, job Job) (Job, error)
	// Recorded calls f for each job that has a record and is queued or in flight, until
	// f returns false.
	Recorded(f func(Job) bool)
}

// Queues has the jobs that can be taken, by workers and by callbacks. A consumer that is
// paused has none.
type Queues interface {
	// Queued returns the first queued jobs of a consumer: the highest priority
	// first, the oldest first within one. A job that waits for its time is not among
	// them until Enqueue.
	Queued(consumer uint32, limit int) []Job
	// Take is Queued, and hides the jobs from other calls of Queued and Take on
	// this node until they are put or given back.
	Take(consumer uint32, limit int) []Job
	// GiveBack undoes Take for a job that was not put.
	GiveBack(j Job)
	// Enqueue has a queued job taken that has waited for its time, unless it is.
	Enqueue(id JobID)
	// QueuedSignal returns a channel that is closed when the consumer gets
	// another queued job.
	QueuedSignal(consumer uint32) <-chan struct{}
}

// JobLists shows jobs.
type JobLists interface {
	// JobsOf returns the jobs of a message, one for each consumer that has it.
	JobsOf(channel string, seq uint64) []Job
	// ListJobs returns a page of a consumer's jobs in one state, newest first. Of the delivered there is no list.
	ListJobs(consumer uint32, status JobStatus, page Page) []Job
	// CountJobs counts a consumer's jobs, in the order of JobStatuses.
	CountJobs(consumer uint32) []StatusCount
	// Whole reads what the index has not of settled jobs of push consumers: of the others it has all that is shown. Those
	// whose records are gone stay as they are.
	Whole(ctx context.Context, jobs []Job) error
	// Backlogs tells what every consumer has to do, at a cost that the number of jobs does not matter for.
	Backlogs() []Backlog
}

// Ownership is told which shards are this node's to dispatch. Gained and Lost of one
// shard are called one after the other.
type Ownership struct {
	// Gained is called when a shard has become this node's, or is so again after a
	// moment in which that was not certain. What others have recorded is known here.
	Gained func(shard int)
	// Lost is called when another node is to dispatch, which waits for it a moment.
	Lost func(shard int)
	// Breaker tells other nodes the state of a consumer's circuit breaker, if its callbacks are made here.
	Breaker func(consumer uint32) (state BreakerState, here bool)
}

// Shards gives the dispatching to push consumers to one node at a time: each channel
// belongs to one shard, and each shard to one node. For a moment two may think that
// it is theirs; then the records of jobs decide.
type Shards interface {
	// Shard is that of a channel, from 0 to Shards.
	Shard(channel string) int
	// Shards is how many there are.
	Shards() int
	// Own takes part in the ownership until ctx ends; then it hands over.
	Own(ctx context.Context, o Ownership)
	// Owns tells whether a callback of a shard may begin on this node now.
	Owns(shard int) bool
	// AskBreaker asks the node that makes the callbacks of a consumer for the state of its circuit breaker; empty: it has
	// none, or no node has answered.
	AskBreaker(ctx context.Context, consumer uint32) BreakerState
	// Recordable reports why the outcome of a callback could not be kept now, or nil.
	Recordable() error
}

// View is what there is to see: it changes nothing.
type View interface {
	Directory
	Messages
	JobLists
	// Ready reports why the store cannot serve now, or nil.
	Ready() error
}

// Store is everything that a broker keeps. Each of its parts has its own users.
type Store interface {
	View
	Registrar
	Broadcasts
	Retention
	Records
	Queues
	Attempts
	Replays
	Shards
	// Notify sets the callbacks for changes. It is called once, before any use.
	Notify(e Events)
}
