package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/progress"
)

// rates are changes a second between two looks at a consumer.
type rates struct {
	Delivered float64 `json:"delivered"`
	Acked     float64 `json:"ack_floor"`
	Pending   float64 `json:"pending"`
}

// between is the change from one state to the next, nil where it says nothing:
// no time has passed, or the consumer was made anew in between.
func between(before, after state) *rates {
	took := after.Time.Sub(before.Time).Seconds()
	if took <= 0 || after.Delivered.Consumer < before.Delivered.Consumer || after.AckFloor.Consumer < before.AckFloor.Consumer {
		return nil
	}
	return &rates{
		Delivered: float64(after.Delivered.Consumer-before.Delivered.Consumer) / took,
		Acked:     float64(after.AckFloor.Consumer-before.AckFloor.Consumer) / took,
		Pending:   (float64(after.Pending) - float64(before.Pending)) / took,
	}
}

// view shows a consumer as time goes by.
type view interface {
	show(info *jetstream.ConsumerInfo, s state) error
	advisory(jetpull.PinAdvisory) error
	problem(error) error
}

// runWatch looks at the consumer at every interval. A server that does not
// answer is told and asked again; a consumer that is gone ends the watch.
func runWatch(cmd *cobra.Command, g *globals, f *infoFlags, l *link, stream, consumer string) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	out := cmd.OutOrStdout()
	var v view = &lineView{out: out}
	switch {
	case g.json:
		v = &jsonView{out: out}
	case progress.IsTerminal(out):
		v = &screenView{out: out}
	}
	advisories := listen(ctx, l.js, stream, consumer)
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
	for n := 1; ; n++ {
		s, info, err := look(ctx, l, stream, consumer, before)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (before == nil || gone(err)):
			return err
		case err != nil:
			err = v.problem(err)
		default:
			before = s
			err = v.show(info, *s)
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

func look(ctx context.Context, l *link, stream, consumer string, before *state) (*state, *jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	info, err := consumerInfo(ctx, l.js, stream, consumer)
	if err != nil {
		return nil, nil, err
	}
	s := observe(info, time.Now())
	if before != nil {
		s.Rates = between(*before, s)
	}
	return &s, info, nil
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
		return fmt.Sprintf("group %s: pinned %s", a.Group, a.ID)
	}
	return fmt.Sprintf("group %s: unpinned (%s)", a.Group, a.Reason)
}

func (v *lineView) problem(err error) error {
	_, err = fmt.Fprintf(v.out, "%s %s\n", time.Now().Format(time.TimeOnly), plain(err))
	return err
}

// jsonView writes a line of JSON for each look and each advisory.
type jsonView struct{ out io.Writer }

func (v *jsonView) show(_ *jetstream.ConsumerInfo, s state) error { return writeJSON(v.out, s) }

func (v *jsonView) advisory(a jetpull.PinAdvisory) error {
	event := "unpinned"
	if a.Pinned {
		event = "pinned"
	}
	return writeJSON(v.out, struct {
		Event  string    `json:"event"`
		Group  string    `json:"group"`
		ID     string    `json:"id,omitempty"`
		Reason string    `json:"reason,omitempty"`
		Time   time.Time `json:"time"`
	}{event, a.Group, a.ID, a.Reason, a.Time.UTC()})
}

func (v *jsonView) problem(err error) error {
	return writeJSON(v.out, struct {
		Event string `json:"event"`
		Error string `json:"error"`
	}{"problem", err.Error()})
}

// screenView draws the consumer again and again in the same place.
type screenView struct {
	out   io.Writer
	lines int
	last  []string // what happened, newest last
	info  *jetstream.ConsumerInfo
	state state
}

// eventsShown is how many of the last switches and problems stay on the screen.
const eventsShown = 6

func (v *screenView) show(info *jetstream.ConsumerInfo, s state) error {
	v.info, v.state = info, s
	return v.draw()
}

func (v *screenView) advisory(a jetpull.PinAdvisory) error {
	return v.happened(a.Time, advisoryText(a))
}

func (v *screenView) problem(err error) error { return v.happened(time.Now(), plain(err)) }

func (v *screenView) happened(at time.Time, what string) error {
	v.last = append(v.last, at.Local().Format(time.TimeOnly)+" "+what)
	v.last = v.last[max(0, len(v.last)-eventsShown):]
	if v.info == nil {
		return nil
	}
	return v.draw()
}

func (v *screenView) draw() error {
	var b strings.Builder
	if err := printInfo(&b, v.info, v.state); err != nil {
		return err
	}
	text := "–"
	if v.state.Rates != nil {
		text = ratesText(*v.state.Rates)
	}
	fmt.Fprintf(&b, "%-13s  %s\n", "rates", text)
	for _, line := range v.last {
		fmt.Fprintln(&b, line)
	}
	text = clip(b.String(), v.width())
	up := ""
	if v.lines > 0 {
		// Up to the first line of what stands there, and clear from there on.
		up = fmt.Sprintf("\x1b[%dA\x1b[J", v.lines)
	}
	v.lines = strings.Count(text, "\n")
	_, err := io.WriteString(v.out, up+text)
	return err
}

// width is that of the terminal, 0 where it does not tell.
func (v *screenView) width() int {
	f, ok := v.out.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// clip cuts lines that the terminal would wrap: they would be two on the screen,
// and the next drawing would begin too low.
func clip(text string, width int) string {
	if width <= 0 {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if r := []rune(strings.TrimSuffix(line, "\n")); len(r) > width {
			line = string(r[:width-1]) + "…\n"
		}
		b.WriteString(line)
	}
	return b.String()
}
