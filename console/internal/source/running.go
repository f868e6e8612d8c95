package source

import (
	"context"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/internal/running"
)

// workersAnswer is how long workers may take to answer. A page that is open waits for all of it, if there is any worker.
const workersAnswer = 500 * time.Millisecond

// Running implements [page.ConsumerSource].
func (j JetStream) Running(ctx context.Context, stream, consumer string) ([]running.List, error) {
	all, err := running.Ask[running.List](ctx, j.JS.Conn(), running.ListSubject(stream, consumer), "", workersAnswer)
	return all, inWords(err)
}

// Cancel implements [page.ConsumerSource].
func (j JetStream) Cancel(ctx context.Context, stream, consumer string, sequence uint64) ([]running.Cancelled, error) {
	all, err := running.Ask[running.Cancelled](ctx, j.JS.Conn(), running.CancelSubject(stream, consumer), strconv.FormatUint(sequence, 10),
		2*workersAnswer)
	return all, inWords(err)
}
