package watch

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/infocmd/consumer"
	"github.com/jetpull/jetpull/internal/progress"
)

// view shows a consumer at each look, and what happens in between.
type view interface {
	show(info *jetstream.ConsumerInfo, s consumer.State) error
	happened(e event) error
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

// jsonView writes a line of JSON for each look and each event.
type jsonView struct{ out io.Writer }

func (v *jsonView) show(_ *jetstream.ConsumerInfo, s consumer.State) error {
	return cli.WriteJSON(v.out, s)
}

func (v *jsonView) happened(e event) error { return cli.WriteJSON(v.out, e) }

// lineView writes a line for each look and each event.
type lineView struct{ out io.Writer }

func (v *lineView) show(_ *jetstream.ConsumerInfo, s consumer.State) error {
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

func (v *lineView) happened(e event) error {
	_, err := io.WriteString(v.out, e.line())
	return err
}

// screenView draws the consumer again and again in the same place.
type screenView struct {
	out   io.Writer
	lines int
	last  []string // what happened, newest last
	info  *jetstream.ConsumerInfo
	state consumer.State
}

// eventsShown is how many of the last events stay on the screen.
const eventsShown = 6

func (v *screenView) show(info *jetstream.ConsumerInfo, s consumer.State) error {
	v.info, v.state = info, s
	return v.draw()
}

func (v *screenView) happened(e event) error {
	v.last = append(v.last, e.line())
	v.last = v.last[max(0, len(v.last)-eventsShown):]
	if v.info == nil {
		return nil
	}
	return v.draw()
}

func (v *screenView) draw() error {
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
