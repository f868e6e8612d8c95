package jsstream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Oldest is when the oldest message that a consumer has not acknowledged was stored, or the zero time if there is none.
func Oldest(ctx context.Context, js jetstream.JetStream, c *jetstream.ConsumerInfo) (time.Time, error) {
	return StoredAfter(ctx, js, c, c.AckFloor.Stream)
}

// StoredAfter is when the first message after a sequence that is for a consumer was stored, or the zero time if there is none. For a consumer with
// more than 8 filters it is the time of the first message of any subject, which is at least as old.
func StoredAfter(ctx context.Context, js jetstream.JetStream, c *jetstream.ConsumerInfo, sequence uint64) (at time.Time, err error) {
	const most = 8
	subjects := c.Config.FilterSubjects
	switch {
	case c.Config.FilterSubject != "":
		subjects = []string{c.Config.FilterSubject}
	case len(subjects) == 0 || len(subjects) > most:
		subjects = []string{">"}
	}
	for _, subject := range subjects {
		m, err := Next(ctx, js, c.Stream, sequence+1, subject)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case err != nil:
			return time.Time{}, err
		case at.IsZero() || m.Time.Before(at):
			at = m.Time
		}
	}
	return at, nil
}
