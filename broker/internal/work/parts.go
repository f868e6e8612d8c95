package work

import (
	"context"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Stakeholders keeps producers, channels and consumers. A save with revision 0 makes an object, which gets its number, revision and
// time of creation; any other changes one. Both fail with ErrConflict when the stored revision is not the given one.
type Stakeholders interface {
	Producer(ctx context.Context, id string) (domain.Producer, error)
	Producers() []domain.Producer
	SaveProducer(ctx context.Context, p domain.Producer) (domain.Producer, error)
	Channel(ctx context.Context, id string) (domain.Channel, error)
	Channels() []domain.Channel
	SaveChannel(ctx context.Context, c domain.Channel) (domain.Channel, error)
	Consumer(ctx context.Context, channel, id string) (domain.Consumer, error)
	SaveConsumer(ctx context.Context, c domain.Consumer) (domain.Consumer, error)
	DeleteConsumer(ctx context.Context, c domain.Consumer) error
	// Kept returns once an object that was read with this revision is on disk: the caller that has written it may still wait.
	Kept(ctx context.Context, revision uint64) error
}

// AccessTokens keeps the access tokens of channels.
type AccessTokens interface {
	Accesses(channel string) []domain.AccessToken
	SaveAccess(ctx context.Context, t domain.AccessToken) (domain.AccessToken, error)
	DeleteAccess(ctx context.Context, t domain.AccessToken) error
}

// Consumers finds consumers, and changes one while its callbacks are made.
type Consumers interface {
	// Consumers lists those of one channel, or of all if it is empty.
	Consumers(channel string) []domain.Consumer
	// ConsumerByNumber finds one in memory.
	ConsumerByNumber(number uint32) (domain.Consumer, bool)
	// RefreshConsumer finds one after a look at what is stored.
	RefreshConsumer(ctx context.Context, channel, id string) (domain.Consumer, error)
	SaveConsumer(ctx context.Context, c domain.Consumer) (domain.Consumer, error)
	Kept(ctx context.Context, revision uint64) error
}

// MessageLog takes what is broadcast, now or later. It is on disk when a call returns, as far as the server's settings go.
type MessageLog interface {
	Append(ctx context.Context, m domain.Message) (domain.Message, error)
	Schedule(ctx context.Context, m domain.Message, at time.Time) error
	MaxPayload() int
}

// Messages finds what was broadcast.
type Messages interface {
	// MessagesAt loads messages by sequence; those that are gone are missing. With ErrUnavailable it returns those that could
	// be read now.
	MessagesAt(ctx context.Context, seqs []uint64) (map[uint64]domain.Message, error)
}

// Records keeps the states of jobs, and what was tried.
type Records interface {
	// Job returns a job as it is known here, removed or not, or ErrNotFound. Of one that is settled it may have the state, time
	// and revision only.
	Job(ctx context.Context, id domain.JobID) (domain.Job, error)
	// Refresh is Job, whole, after a look at what is stored if another node may have written it.
	Refresh(ctx context.Context, id domain.JobID) (domain.Job, error)
	// PutJob writes a job's new state. It fails with ErrConflict when the stored revision is not job.Revision; the job as it is
	// now can then be read with Job.
	PutJob(ctx context.Context, job domain.Job) (domain.Job, error)
	// KeepAttempt stores an attempt, in place of one with its number. It waits for no disk.
	KeepAttempt(ctx context.Context, id domain.JobID, a domain.Attempt) error
	// AttemptAt returns one that was stored, or ErrNotFound.
	AttemptAt(ctx context.Context, id domain.JobID, number int) (domain.Attempt, error)
}

// Queue has the jobs that can be taken, by workers and by callbacks. A consumer that is paused has none.
type Queue interface {
	// Queued returns the first queued jobs of a consumer: the highest priority first, the oldest first within one. A job that
	// waits for its time is not among them until Enqueue.
	Queued(consumer uint32, limit int) []domain.Job
	// Take is Queued, and hides the jobs from other calls of Queued and Take on this node until they are put or given back.
	Take(consumer uint32, limit int) []domain.Job
	GiveBack(j domain.Job)
	Enqueue(id domain.JobID)
	// QueuedSignal returns a channel that is closed when the consumer gets another queued job.
	QueuedSignal(consumer uint32) <-chan struct{}
}

// Known shows what a node knows of jobs.
type Known interface {
	// JobsOf returns the jobs of a message, one for each consumer that has it.
	JobsOf(channel string, seq uint64) []domain.Job
	// ListJobs returns a page of a consumer's jobs in one state, newest first.
	ListJobs(consumer uint32, status domain.JobStatus, page domain.Page) []domain.Job
	// Recorded calls f for each job that has a record and is queued or in flight, until f returns false.
	Recorded(f func(domain.Job) bool)
	// Backlogs is what every consumer has to do, at a cost that the number of jobs does not matter for.
	Backlogs() []domain.Backlog
}

// Shards gives the dispatching to push consumers to one node at a time: each channel belongs to one shard, and each shard to one
// node. For a moment two nodes may both own one; then the records of jobs decide.
type Shards interface {
	Shard(channel string) int
	Shards() int
	// Own takes part in the ownership until ctx ends; then it hands over.
	Own(ctx context.Context, o domain.Ownership)
	// Owns tells whether a callback of a shard may begin on this node now.
	Owns(shard int) bool
	// AskBreaker asks the node that makes the callbacks of a consumer for the state of its circuit breaker; empty: it has none, or
	// no node has answered.
	AskBreaker(ctx context.Context, consumer uint32) domain.BreakerState
}

// Retention deletes what is done.
type Retention interface {
	// Finished returns up to limit sequences of messages, stored before the given time, of which no job is queued or in flight.
	Finished(before time.Time, limit int) []uint64
	// Prune deletes messages and the records of their jobs.
	Prune(ctx context.Context, seqs []uint64) error
}

// Health is what the store can do now.
type Health interface {
	// Ready reports why the store cannot serve now, or nil.
	Ready() error
	// Recordable reports why the outcome of a callback could not be kept now, or nil.
	Recordable() error
}
