package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// The server's error codes for schedules. nats.go has no names for them, and nats-server 2.11 and 2.12 have no constants.
const (
	schedulePatternInvalid  jetstream.ErrorCode = 10189
	scheduleTimeZoneInvalid jetstream.ErrorCode = 10223
)

// schedule specifies when the stream publishes the message (ADR-51). The zero value means now.
type schedule struct {
	at                time.Time
	every             time.Duration
	cron, zone, under string
}

func (s *schedule) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	cli.Future(flags, &s.at, "at", "have the stream publish the message at a")
	cli.Duration(flags, &s.every, "every", 0, time.Second, "have the stream publish it again and again")
	flags.StringVar(&s.cron, "cron", "", "publish it by a `PATTERN` of six fields, seconds first, or @hourly, @daily, @weekly, @monthly, @yearly")
	flags.StringVar(&s.zone, "time-zone", "", "`NAME` of the time zone of --cron, such as Europe/Berlin (default UTC)")
	flags.StringVar(&s.under, "schedule", "", "`SUBJECT` of the same stream under which the schedule is stored; a schedule that is there is replaced")
	cli.Exclusive(cmd, "at", "every", "cron")
}

func (s *schedule) given() bool { return !s.at.IsZero() || s.every != 0 || s.cron != "" }

// check returns an error for values that exclude each other.
func (s *schedule) check(subject string, count int) error {
	switch {
	case !s.given() && s.under+s.zone != "":
		return errors.New("--schedule and --time-zone need --at, --every or --cron")
	case !s.given():
		return nil
	case s.zone != "" && s.cron == "":
		return errors.New("--time-zone belongs to --cron; --at has the zone in its time")
	case count != 1:
		return fmt.Errorf("a schedule is one message, and --count is %d", count)
	case s.under == subject || !server.IsValidPublishSubject(s.under):
		return fmt.Errorf("--schedule %q is not a subject beside %s: name one of the same stream, such as schedules.%[2]s", s.under, subject)
	}
	return nil
}

// store stores the schedule.
func (s *schedule) store(ctx context.Context, js jetstream.JetStream, p *plan) error {
	m, err := p.message(1)
	if err != nil {
		return err
	}
	opts := []jetstream.PublishOpt{jetstream.WithScheduleTarget(m.Subject)}
	switch {
	case !s.at.IsZero():
		opts = append(opts, jetstream.WithScheduleAt(s.at))
	case s.every != 0:
		opts = append(opts, jetstream.WithScheduleEvery(s.every))
	default:
		opts = append(opts, jetstream.WithScheduleCron(s.cron))
	}
	if s.zone != "" {
		opts = append(opts, jetstream.WithScheduleTimeZone(s.zone))
	}
	m.Subject = s.under
	_, err = js.PublishMsg(ctx, m, opts...)
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok && s.cron != "" {
		switch refused.ErrorCode {
		case schedulePatternInvalid:
			return cli.Usage(fmt.Errorf("--cron %q is not a pattern of six fields, seconds first, such as '0 0 6 * * *', nor @hourly, @daily, "+
				"@weekly, @monthly or @yearly: %w", s.cron, err))
		case scheduleTimeZoneInvalid:
			return cli.Usage(fmt.Errorf("--time-zone %q is not known to the server: give a name such as Europe/Berlin: %w", s.zone, err))
		}
	}
	if err != nil {
		return fmt.Errorf("schedule under %s: %w; the stream needs AllowMsgSchedules and both subjects, and --create NAME makes such a stream",
			s.under, err)
	}
	return nil
}
