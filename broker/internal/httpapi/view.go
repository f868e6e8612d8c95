package httpapi

import (
	"context"

	directory "github.com/jetpull/jetpull/broker/internal/admin"
	"github.com/jetpull/jetpull/broker/internal/domain"
)

// View has the sources of the data that the routes show.
type View struct {
	Directory *directory.Directory
	Messages  Messages
	Jobs      Jobs
}

// Messages finds broadcasts and schedules.
type Messages interface {
	Message(ctx context.Context, channel, id string) (domain.Message, error)
	MessagesAt(ctx context.Context, seqs []uint64) (map[uint64]domain.Message, error)
	ListMessages(ctx context.Context, channel string, page domain.Page) ([]domain.MessageRef, error)
	SearchMessages(channel string, s domain.ReplaySpec, eventTypes string, before uint64, limit int) (seqs []uint64, next uint64)
	CountMessages(channel string) int
	Scheduled(ctx context.Context, channel, id string) (domain.Scheduled, error)
	ListScheduled(ctx context.Context, channel string, status domain.MessageStatus, page domain.Page) ([]domain.MessageRef, error)
	CountScheduled(channel string) domain.ScheduledCounts
	CancelScheduled(ctx context.Context, channel, id string) error
}

// Jobs shows jobs.
type Jobs interface {
	JobsOf(channel string, seq uint64) []domain.Job
	ListJobs(consumer uint32, status domain.JobStatus, before uint64, limit int) (jobs []domain.Job, next uint64)
	ListDead(consumer uint32, page domain.Page) []domain.Job
	CountJobs(consumer uint32) []domain.StatusCount
	Complete(ctx context.Context, jobs []domain.Job) error
}
