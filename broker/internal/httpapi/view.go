package httpapi

import (
	"context"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// View is what the routes show.
type View struct {
	Directory Directory
	Messages  Messages
	Jobs      Jobs
}

// Directory finds producers, channels, consumers and access tokens, in memory: what another node has made is found at once, what
// it has changed or removed is so here a moment later. The Refresh methods look at what is stored first, for a change. If the
// store cannot be asked, what is in memory is found; for what is not, the error is ErrUnavailable and not ErrNotFound. Lists have
// the newest first.
type Directory interface {
	Producer(ctx context.Context, id string) (domain.Producer, error)
	RefreshProducer(ctx context.Context, id string) (domain.Producer, error)
	Producers() []domain.Producer
	Channel(ctx context.Context, id string) (domain.Channel, error)
	RefreshChannel(ctx context.Context, id string) (domain.Channel, error)
	Channels() []domain.Channel
	RefreshAccess(ctx context.Context, channel, id string) (domain.AccessToken, error)
	Accesses(channel string) []domain.AccessToken
	Consumer(ctx context.Context, channel, id string) (domain.Consumer, error)
	RefreshConsumer(ctx context.Context, channel, id string) (domain.Consumer, error)
	ConsumerByNumber(number uint32) (domain.Consumer, bool)
	Consumers(channel string) []domain.Consumer
}

// Messages finds what was broadcast, or is to be.
type Messages interface {
	Message(ctx context.Context, channel, id string) (domain.Message, error)
	MessagesAt(ctx context.Context, seqs []uint64) (map[uint64]domain.Message, error)
	ListMessages(ctx context.Context, channel string, page domain.Page) ([]domain.MessageRef, error)
	CountMessages(channel string) int
	Scheduled(ctx context.Context, channel, id string) (domain.Scheduled, error)
	ListScheduled(ctx context.Context, channel string, status domain.ScheduledStatus, page domain.Page) ([]domain.MessageRef, error)
	CountScheduled(channel string) domain.ScheduledCounts
	CancelScheduled(ctx context.Context, channel, id string) error
}

// Jobs shows jobs.
type Jobs interface {
	JobsOf(channel string, seq uint64) []domain.Job
	ListDead(consumer uint32, page domain.Page) []domain.Job
	CountJobs(consumer uint32) []domain.StatusCount
	Whole(ctx context.Context, jobs []domain.Job) error
}
