package infocmd

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/progress"
)

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

func (v *screenView) problem(err error) error {
	return v.happened(time.Now(), progress.Readable(cli.Plain(err)))
}

func (v *screenView) connected() error { return v.happened(time.Now(), "connected again") }

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
