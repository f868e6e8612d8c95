package infocmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/internal/progress"
)

// rates are changes a second between two looks at a consumer.
type rates struct {
	Delivered float64 `json:"delivered"`
	Acked     float64 `json:"acked"`
	Pending   float64 `json:"pending"`
}

// between is the change from one state to the next, nil where it says nothing: no time has passed, or the consumer was
// recreated in between. A message that is delivered and no longer ack pending counts as acknowledged; the ack floor waits
// for the oldest. A redelivery is no new message: of those there are no more than the stream sequence has moved.
func between(before, after state) *rates {
	took := after.Time.Sub(before.Time).Seconds()
	if took <= 0 || after.Delivered.Consumer < before.Delivered.Consumer || after.AckFloor.Consumer < before.AckFloor.Consumer {
		return nil
	}
	delivered := float64(after.Delivered.Consumer - before.Delivered.Consumer)
	first := min(delivered, float64(after.Delivered.Stream)-float64(before.Delivered.Stream))
	return &rates{
		Delivered: delivered / took,
		Acked:     max(0, first-float64(after.AckPending-before.AckPending)) / took,
		Pending:   (float64(after.Pending) - float64(before.Pending)) / took,
	}
}

// view shows a consumer as time goes by.
type view interface {
	show(info *jetstream.ConsumerInfo, s state) error
	advisory(jetpull.PinAdvisory) error
	problem(error) error
	// connected is called when the connection is there again.
	connected() error
}

// errLost says why a look at the consumer shows nothing.
var errLost = errors.New("the connection to the server is lost; connecting again")

// runWatch looks at the consumer at every interval. A server that does not
// answer is told and asked again; a consumer that is gone ends the watch.
func runWatch(cmd *cobra.Command, g *client.Globals, f *infoFlags, l *client.Link, stream, consumer string) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	out := cmd.OutOrStdout()
	var v view = &lineView{out: out}
	switch {
	case g.JSON:
		v = &jsonView{out: out}
	case progress.IsTerminal(out):
		v = &screenView{out: out}
	}
	advisories := listen(ctx, l.JS, stream, consumer)
	defer func() {
		cancel()
		for range advisories {
			// What comes now is not shown any more.
			continue
		}
	}()
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	var before *state
	lost := false
	for n := 1; ; n++ {
		s, info, err := look(ctx, l, stream, consumer, before)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (before == nil || gone(err)):
			return err
		case lost && errors.Is(err, errLost):
			err = nil // it has been said
		case err != nil:
			lost = lost || errors.Is(err, errLost)
			err = v.problem(err)
		default:
			before = s
			if lost {
				err = v.connected()
			}
			lost = false
			err = errors.Join(err, v.show(info, *s))
		}
		if err != nil {
			return err
		}
		if n == f.count {
			return nil
		}
		if err := untilTick(ctx, tick, advisories, v); err != nil {
			return err
		}
	}
}

func look(ctx context.Context, l *client.Link, stream, consumer string, before *state) (*state, *jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	ctx, done := whileConnected(ctx, l)
	defer done()
	info, err := consumerInfo(ctx, l.JS, stream, consumer)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errLost):
		return nil, nil, errLost
	case err != nil:
		return nil, nil, err
	}
	s := observe(info, time.Now())
	if before != nil {
		s.Rates = between(*before, s)
	}
	return &s, info, nil
}

// whileConnected returns a context that ends, by errLost, when the connection does:
// nats.go would hold a request until it is there again. done frees it.
func whileConnected(ctx context.Context, l *client.Link) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	changes := l.NC.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	if !l.NC.IsConnected() {
		cancel(errLost)
	}
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-changes:
			cancel(errLost)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(nil)
		watch.Wait()
		l.NC.RemoveStatusListener(changes)
	}
}

func gone(err error) bool {
	return errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
}

// told is what the server says of pins by itself.
type told struct {
	advisory jetpull.PinAdvisory
	err      error
}

// listen passes on the advisories until ctx ends, and then closes the channel.
// Without the permission to hear them there are none, and the watch goes on.
func listen(ctx context.Context, js jetstream.JetStream, stream, consumer string) <-chan told {
	c := make(chan told)
	go func() {
		defer close(c)
		for a, err := range jetpull.Advisories(ctx, js, stream, consumer) {
			select {
			case c <- told{a, err}:
			case <-ctx.Done():
			}
		}
	}()
	return c
}

func untilTick(ctx context.Context, tick *time.Ticker, advisories <-chan told, v view) error {
	for {
		select {
		case <-tick.C:
			return nil
		case <-ctx.Done():
			return nil
		case a, ok := <-advisories:
			if !ok {
				advisories = nil
				continue
			}
			err := a.err
			if err == nil {
				err = v.advisory(a.advisory)
			} else {
				err = v.problem(err)
			}
			if err != nil {
				return err
			}
		}
	}
}

// lineView writes a line for each look.
type lineView struct{ out io.Writer }

func (v *lineView) show(_ *jetstream.ConsumerInfo, s state) error {
	line := fmt.Sprintf("%s pending %s, ack pending %s, redelivered %s, waiting pulls %s",
		s.Time.Local().Format(time.TimeOnly), progress.Count(s.Pending), progress.Count(s.AckPending),
		progress.Count(s.Redelivered), progress.Count(s.Waiting))
	if s.Rates != nil {
		line += ", " + ratesText(*s.Rates)
	}
	for _, p := range s.Pins {
		line += fmt.Sprintf(", pin of %s: %s", p.Group, pinText(p, s.Time))
	}
	_, err := fmt.Fprintln(v.out, line)
	return err
}

func ratesText(r rates) string {
	return fmt.Sprintf("delivered %.0f/s, acked %.0f/s, pending %+.0f/s", r.Delivered, r.Acked, r.Pending)
}

func (v *lineView) advisory(a jetpull.PinAdvisory) error {
	_, err := fmt.Fprintf(v.out, "%s %s\n", a.Time.Local().Format(time.TimeOnly), advisoryText(a))
	return err
}

func advisoryText(a jetpull.PinAdvisory) string {
	if a.Pinned {
		return progress.Readable(fmt.Sprintf("group %s: pinned %s", a.Group, a.ID))
	}
	return progress.Readable(fmt.Sprintf("group %s: unpinned (%s)", a.Group, a.Reason))
}

func (v *lineView) problem(err error) error {
	_, err = fmt.Fprintf(v.out, "%s %s\n", time.Now().Format(time.TimeOnly), progress.Readable(cli.Plain(err)))
	return err
}

func (v *lineView) connected() error {
	_, err := fmt.Fprintf(v.out, "%s connected again\n", time.Now().Format(time.TimeOnly))
	return err
}

// jsonView writes a line of JSON for each look and each advisory.
type jsonView struct{ out io.Writer }

func (v *jsonView) show(_ *jetstream.ConsumerInfo, s state) error { return cli.WriteJSON(v.out, s) }

func (v *jsonView) advisory(a jetpull.PinAdvisory) error {
	event := "unpinned"
	if a.Pinned {
		event = "pinned"
	}
	return cli.WriteJSON(v.out, struct {
		Event  string    `json:"event"`
		Group  string    `json:"group"`
		ID     string    `json:"id,omitempty"`
		Reason string    `json:"reason,omitempty"`
		Time   time.Time `json:"time"`
	}{event, a.Group, a.ID, a.Reason, a.Time.UTC()})
}

func (v *jsonView) problem(err error) error {
	return cli.WriteJSON(v.out, struct {
		Event string `json:"event"`
		Error string `json:"error"`
	}{"problem", cli.Plain(err)})
}

func (v *jsonView) connected() error {
	return cli.WriteJSON(v.out, struct {
		Event string `json:"event"`
	}{"connected"})
}
