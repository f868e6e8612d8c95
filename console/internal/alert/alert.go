// Package alert reports objects that become red, and that recover. It judges nothing itself: the pages say what is red.
package alert

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/watch"
)

// Object is something that is judged.
type Object struct {
	Kind, Name string
	// Path is that of its page.
	Path  string
	State state.State
	// Since is when the state began, and Waiting how much waits for the object, for the overview.
	Since, Waiting view.Value
}

// Sample is what a source answered last.
type Sample struct {
	Source state.Source
	// At is when the objects were judged. Zero: they were not yet.
	At      time.Time
	Objects []Object
}

// The types of events.
const (
	typeRed       = "console.red"
	typeRecovered = "console.recovered"
	typeGone      = "console.gone"
)

// event is the body of a request.
type event struct {
	Type     string `json:"type"`
	Object   string `json:"object"`
	Kind     string `json:"kind"`
	Sentence string `json:"sentence"`
	// Since is when the object was first seen red.
	Since time.Time `json:"since"`
	URL   string    `json:"url,omitempty"`
	// Environment is that of the console.
	Environment string `json:"environment,omitempty"`
}

// Run looks at the samples of all sources from time to time until ctx ends, and sends events. Sources of one name are one source: it is red if one of
// them is. Pages is the URL of the console; empty: events have no URL. Send reports whether it has taken an event.
func Run(ctx context.Context, every time.Duration, samples []func() Sample, environment, pages string, send func(any) bool) {
	w := watcher{environment: environment, pages: pages, send: send, at: make([]time.Time, len(samples)), all: map[key]*entry{}}
	watch.Every(ctx, every, func() { w.look(samples, time.Now()) })
}

// watcher is what the last looks have seen.
type watcher struct {
	environment string
	pages       string
	send        func(any) bool
	at          []time.Time    // when the objects of each sample were judged that was looked at
	all         map[key]*entry // the objects that are or were red
}

// key differs for each object of a sample. Sources share a page, and the names of two objects may read the same.
type key struct {
	sample     int // the one behind the last is that of the sources
	path, name string
}

// entry is an object that is or was red.
type entry struct {
	Object
	since    time.Time // when it was first seen red
	reported bool      // it was reported as red
	next     string    // what the last look would have reported, if it was another than red
}

// look looks at the state of each source, and at the objects of each answer that is new. Without an answer, objects stay as they were.
func (w *watcher) look(samples []func() Sample, now time.Time) {
	sources := map[string]Object{}
	for i, latest := range samples {
		s := latest()
		st := s.Source.Of(now)
		if worst, ok := sources[s.Source.Name]; !ok || st.Level < worst.State.Level {
			sources[s.Source.Name] = Object{Kind: "source", Name: s.Source.Name, Path: "overview", State: st}
		}
		if s.At.After(w.at[i]) {
			w.at[i] = s.At
			w.see(i, s.Objects, now)
		}
	}
	w.see(len(samples), slices.Collect(maps.Values(sources)), now)
}

// see looks at all objects of a sample. Only a second look in a row that finds the same reports it. A look at a state that is not known is none.
func (w *watcher) see(sample int, objects []Object, now time.Time) {
	listed := map[key]bool{}
	for _, o := range objects {
		k := key{sample, o.Path, o.Name}
		listed[k] = true
		e, red := w.all[k], o.State.Level == state.Red
		switch {
		case o.State.Level == state.Unknown, e == nil && !red:
		case e == nil:
			w.all[k] = &entry{Object: o, since: now}
		case !red:
			w.notRed(k, e, typeRecovered, o.State.Sentence)
		case !e.reported:
			e.reported = w.report(e, typeRed, o.State.Sentence) // else the next look reports it
		default:
			e.next = ""
		}
	}
	for k, e := range w.all {
		if k.sample == sample && !listed[k] {
			w.notRed(k, e, typeGone, "The source answers and does not list it.")
		}
	}
}

// notRed looks at an object that was red and is not, or is not listed.
func (w *watcher) notRed(k key, e *entry, what, sentence string) {
	if e.reported && e.next != what {
		e.next = what
		return
	}
	if e.reported {
		w.report(e, what, sentence)
	}
	delete(w.all, k)
}

func (w *watcher) report(e *entry, what, sentence string) bool {
	out := event{Type: what, Object: e.Name, Kind: e.Kind, Sentence: sentence, Since: e.since.UTC(), Environment: w.environment}
	if w.pages != "" {
		out.URL = w.pages + "/" + e.Path
	}
	return w.send(out)
}
