package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/examples/internal/chart"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/relay/client"
)

// report writes the results of all receivers. It returns an error if they are not as the relay promises.
func (d *demo) report(out io.Writer, picture string) error {
	var rows [][]string
	for _, r := range d.receivers {
		rows = append(rows, []string{
			r.name, r.about, progress.Count(len(r.events)), progress.Count(len(r.posts)), r.answers(), progress.Count(r.polls),
			progress.Count(r.densest()), fmt.Sprintf("%s in %g s", progress.Count(r.limit), r.window.Seconds()),
		})
	}
	if err := progress.Table(out, []string{"receiver", "", ">events", ">POSTs", "answers", ">polls", ">most POSTs in a window", ">limit"},
		rows); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "\n%s events of %d sources in %s. %s failed at first, and succeeded after a redrive. Each sender got a callback "+
		"for each result.\n",
		progress.Count(d.events), len(sources), progress.Short(d.lasted), progress.Count(d.redriven)); err != nil {
		return err
	}
	if err := errors.Join(d.verify()...); err != nil {
		return err
	}
	if err := d.draw(picture); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "Chart of each receiver's rate and its limit: %s\n", picture)
	return err
}

// answers returns the statuses with which a receiver responded to POSTs, and how often.
func (r *receiver) answers() string {
	var parts []string
	for code, n := range r.codes {
		parts = append(parts, strconv.Itoa(code)+": "+progress.Count(n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// verify compares the POSTs and callbacks with the plan, and the rates with the limits.
func (d *demo) verify() (wrong []error) {
	for _, event := range d.plan() {
		id := event.Source + "/" + event.ID
		r := d.receiver(event.Receiver)
		posts, ends := 1, []string{client.StatusDone}
		if r.codes[422] > 0 {
			posts, ends = 2, []string{client.StatusFailed, client.StatusDone}
		}
		if r.events[id] != posts {
			wrong = append(wrong, fmt.Errorf("%s was POSTed to %s %d times, not %d", id, r.name, r.events[id], posts))
		}
		if !slices.Equal(d.ends[id], ends) {
			wrong = append(wrong, fmt.Errorf("the sender of %s was called with %v, not %v", id, d.ends[id], ends))
		}
	}
	for _, r := range d.receivers {
		if n := r.densest(); n > r.limit {
			wrong = append(wrong, fmt.Errorf("%s got %d POSTs within %s, and %d are its limit", r.name, n, r.window, r.limit))
		}
	}
	return wrong
}

// samples is the number of intervals between the points of a line.
const samples = 300

// draw writes the chart. It shows for each moment the number of POSTs in the window that ends then.
func (d *demo) draw(path string) error {
	var charts []chart.Chart
	for _, r := range d.receivers {
		rate := chart.Series{Name: "POSTs in the window", Area: true}
		for i := range samples + 1 {
			at := d.lasted * time.Duration(i) / samples
			n := 0
			for _, post := range r.posts {
				if since := d.begin.Add(at).Sub(post); since >= 0 && since < r.window {
					n++
				}
			}
			rate.Points = append(rate.Points, chart.Point{X: at.Seconds(), Y: float64(n)})
		}
		limit := chart.Series{Name: "limit", Dashed: true, Points: []chart.Point{{Y: float64(r.limit)}, {X: d.lasted.Seconds(), Y: float64(r.limit)}}}
		var marks []chart.Mark
		if r.codes[422] > 0 {
			marks = append(marks, chart.Mark{X: d.repaired.Seconds(), Name: "repaired; its failed messages are redriven"})
		}
		charts = append(charts, chart.Chart{
			Marks: marks, Title: r.name + ": " + r.about, XTitle: "seconds", YTitle: fmt.Sprintf("POSTs in %g s", r.window.Seconds()),
			Series: []chart.Series{rate, limit},
		})
	}
	return chart.Save(path, charts...)
}
