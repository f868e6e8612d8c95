// Package alert reports objects that become red, and that recover. The pages decide which objects are red.
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

// Object is an object with its state.
type Object struct {
	Kind, Name string
	// Path is the path of its page.
	Path  string
	State state.State
	// Since is when the state began, and Waiting how much work waits for the object, for the overview.
	Since, Waiting view.Value
}

// Sample is the last answer of a source.
type Sample struct {
	Source state.Source
	// At is when the states of the objects were determined. It is zero if they were not yet.
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
	// Environment is the environment of the console.
	Environment string `json:"environment,omitempty"`
}

// Run checks the samples of all sources periodically until ctx ends, and sends events. Sources with the same name count as one, which is red if one
// of them is. pages is the URL of the console; if it is empty, events have no URL. send reports whether it has accepted an event.
func Run(ctx context.Context, every time.Duration, samples []func() Sample, environment, pages string, send func(any) bool) {
	w := watcher{environment: environment, pages: pages, send: send, at: make([]time.Time, len(samples)), all: map[key]*entry{}}
	watch.Every(ctx, every, func() { w.look(samples, time.Now()) })
}

// watcher holds the results of earlier checks.
type watcher struct {
	environment string
	pages       string
	send        func(any) bool
	at          []time.Time    // by sample: when the objects of the last checked answer were judged
	all         map[key]*entry // objects that are or were red
}

// key identifies an object of a sample. Sources may share a page, and two objects may have the same name.
type key struct {
	sample     int // len(samples) for the objects that are sources
	path, name string
}

// entry is an object that is or was red.
type entry struct {
	Object
	since    time.Time // when it was first seen red
	reported bool      // it was reported as red
	next     string    // the event that the last check would have reported, if it was not red
}

// look checks the state of each source, and the objects of each new answer. Without a new answer, objects keep their states.
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

// see checks all objects of a sample. It reports an event only when two consecutive checks agree. A check of an unknown state does not count.
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
			e.reported = w.report(e, typeRed, o.State.Sentence) // otherwise the next check reports it
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

// notRed handles an object that was red and now is not, or is not listed any more.
func (w *watcher) notRed(k key, e *entry, what, sentence string) {
	if e.reported && (e.next != what || !w.report(e, what, sentence)) { // the next check reports it
		e.next = what
		return
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
