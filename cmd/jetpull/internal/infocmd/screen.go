package infocmd

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/term"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
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

func (v *screenView) problem(err error) error { return v.happened(time.Now(), client.Plain(err)) }

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
