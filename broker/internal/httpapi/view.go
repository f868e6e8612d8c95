package httpapi

import (
	"context"

	directory "github.com/jetpull/jetpull/broker/internal/admin"
	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
)

// View has the sources of the data that the routes show.
type View struct {
	Directory *directory.Directory
	Index     *jobindex.Index
	Messages  Messages
	// Complete fills in the fields of jobs that the index lacks.
	Complete func(ctx context.Context, jobs []domain.Job) error
}

// Messages finds broadcasts and schedules.
type Messages interface {
	Message(ctx context.Context, channel, id string) (domain.Message, error)
	MessagesAt(ctx context.Context, seqs []uint64) (map[uint64]domain.Message, error)
	// InOrder returns the messages with the given sequences that are stored, in that order.
	InOrder(ctx context.Context, seqs []uint64) ([]domain.Message, error)
	Scheduled(ctx context.Context, channel, id string) (domain.Scheduled, error)
	CancelScheduled(ctx context.Context, channel, id string) error
}
