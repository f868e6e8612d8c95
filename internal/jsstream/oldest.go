package jsstream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Oldest is when the oldest message that a consumer has not acknowledged was stored, or the zero time if there is none. For a consumer with several
// filters it is the time of the first message of any subject, which is at least as old.
func Oldest(ctx context.Context, js jetstream.JetStream, c *jetstream.ConsumerInfo) (time.Time, error) {
	subject := ">"
	switch {
	case c.Config.FilterSubject != "":
		subject = c.Config.FilterSubject
	case len(c.Config.FilterSubjects) == 1:
		subject = c.Config.FilterSubjects[0]
	}
	m, err := Next(ctx, js, c.Stream, c.AckFloor.Stream+1, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return m.Time, nil
}
