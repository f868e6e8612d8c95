// Package watch shows a consumer and its advisories live.
package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/infocmd/consumer"
	"github.com/jetpull/jetpull/internal/progress"
)

// errLost says why a look at the consumer shows nothing.
var errLost = errors.New("the connection to the server is lost; connecting again")

// Terms say how often to look, and how many times; 0: until interrupted.
type Terms struct {
	Interval time.Duration
	Count    int
}

// Run looks at a consumer at every interval. A server that does not answer is reported and asked again; a consumer that is gone
// ends the watch.
func Run(ctx context.Context, out io.Writer, asJSON bool, terms Terms, l *client.Link, stream, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	v := &view{out: out, json: asJSON, inPlace: !asJSON && progress.IsTerminal(out)}
	advisories := listen(ctx, l.JS, stream, name)
	defer func() {
		cancel()
		for range advisories {
			// Later changes are not shown any more.
			continue
		}
	}()
	tick := time.NewTicker(terms.Interval)
	defer tick.Stop()
	var before *consumer.State
	lost := false
	for n := 1; ; n++ {
		s, info, err := look(ctx, l, stream, name, before)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (before == nil || gone(err)):
			return err
		case lost && errors.Is(err, errLost):
			err = nil // it has been said
		case err != nil:
			lost = lost || errors.Is(err, errLost)
			err = v.happened(problem(err))
		default:
			before = s
			if lost {
				err = v.happened(event{Event: "connected"})
			}
			lost = false
			err = errors.Join(err, v.show(info, *s))
		}
		if err != nil {
			return err
		}
		if n == terms.Count {
			return nil
		}
		if err := untilTick(ctx, tick, advisories, v); err != nil {
			return err
		}
	}
}

func look(ctx context.Context, l *client.Link, stream, name string, before *consumer.State) (*consumer.State, *jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	ctx, done := whileConnected(ctx, l)
	defer done()
	info, err := consumer.Info(ctx, l.JS, stream, name)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errLost):
		return nil, nil, errLost
	case err != nil:
		return nil, nil, err
	}
	s := consumer.Observe(info, time.Now())
	if before != nil {
		s.Rates = consumer.Between(*before, s)
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

// listen passes on what the server says of pins by itself until ctx ends, and then closes the channel.
// Without the permission to hear it there is nothing, and the watch goes on.
func listen(ctx context.Context, js jetstream.JetStream, stream, name string) <-chan event {
	c := make(chan event)
	go func() {
		defer close(c)
		for a, err := range jetpull.Advisories(ctx, js, stream, name) {
			e := advisory(a)
			if err != nil {
				e = problem(err)
			}
			select {
			case c <- e:
			case <-ctx.Done():
			}
		}
	}()
	return c
}

func untilTick(ctx context.Context, tick *time.Ticker, advisories <-chan event, v *view) error {
	for {
		select {
		case <-tick.C:
			return nil
		case <-ctx.Done():
			return nil
		case e, ok := <-advisories:
			if !ok {
				advisories = nil
				continue
			}
			if err := v.happened(e); err != nil {
				return err
			}
		}
	}
}

// view shows a consumer at each look, and what happens in between: as lines, as lines of JSON, or in place on a terminal.
type view struct {
	out           io.Writer
	json, inPlace bool

	// The lines that are drawn in place.
	lines int
	last  []string // what happened, newest last
	info  *jetstream.ConsumerInfo
	state consumer.State
}

// event is a switch of a pin, a problem, or that the connection is back.
type event struct {
	Event  string     `json:"event"`
	Group  string     `json:"group,omitempty"`
	ID     string     `json:"id,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Error  string     `json:"error,omitempty"`
	Time   *time.Time `json:"time,omitempty"`
}

func problem(err error) event { return event{Event: "problem", Error: cli.Plain(err)} }

func advisory(a jetpull.PinAdvisory) event {
	e := event{Event: "unpinned", Group: a.Group, ID: a.ID, Reason: a.Reason, Time: new(a.Time.UTC())}
	if a.Pinned {
		e.Event = "pinned"
	}
	return e
}

// line is the event as a line for a reader.
func (e *event) line() string {
	at, text := time.Now(), e.Error
	if e.Time != nil {
		at = e.Time.Local()
	}
	switch e.Event {
	case "pinned":
		text = fmt.Sprintf("group %s: pinned %s", e.Group, e.ID)
	case "unpinned":
		text = fmt.Sprintf("group %s: unpinned (%s)", e.Group, e.Reason)
	case "connected":
		text = "connected again"
	}
	return at.Format(time.TimeOnly) + " " + progress.Readable(text) + "\n"
}

// eventsShown is how many of the last events stay on the screen.
const eventsShown = 6

func (v *view) show(info *jetstream.ConsumerInfo, s consumer.State) error {
	if v.json {
		return cli.WriteJSON(v.out, s)
	}
	if v.inPlace {
		v.info, v.state = info, s
		return v.draw()
	}
	line := fmt.Sprintf("%s pending %s, ack pending %s, redelivered %s, waiting pulls %s",
		s.Time.Local().Format(time.TimeOnly), progress.Count(s.Pending), progress.Count(s.AckPending),
		progress.Count(s.Redelivered), progress.Count(s.Waiting))
	if s.Rates != nil {
		line += ", " + s.Rates.Text()
	}
	for _, p := range s.Pins {
		line += fmt.Sprintf(", pin of %s: %s", p.Group, consumer.PinText(p, s.Time))
	}
	_, err := fmt.Fprintln(v.out, line)
	return err
}

func (v *view) happened(e event) error {
	if v.json {
		return cli.WriteJSON(v.out, e)
	}
	if !v.inPlace {
		_, err := io.WriteString(v.out, e.line())
		return err
	}
	v.last = append(v.last, e.line())
	v.last = v.last[max(0, len(v.last)-eventsShown):]
	if v.info == nil {
		return nil
	}
	return v.draw()
}

// draw draws the consumer in the place where it was drawn before.
func (v *view) draw() error {
	var b strings.Builder
	if err := consumer.Print(&b, v.info, v.state); err != nil {
		return err
	}
	text := "–"
	if v.state.Rates != nil {
		text = v.state.Rates.Text()
	}
	fmt.Fprintf(&b, "%-13s  %s\n%s", "rates", text, strings.Join(v.last, ""))
	text = progress.Fit(v.out, b.String())
	up := ""
	if v.lines > 0 {
		// Up to the first line of what stands there, and clear from there on.
		up = fmt.Sprintf("\x1b[%dA\x1b[J", v.lines)
	}
	v.lines = strings.Count(text, "\n")
	_, err := io.WriteString(v.out, up+text)
	return err
}
