package page

import (
	"slices"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
)

// step is something that happened to a message of the relay or the broker.
type step struct {
	at             time.Time
	receiver, what string
	answer, took   view.Value
	problem        string
}

// attempt is a step that made a request. Without a status no response came.
func attempt(at time.Time, receiver string, n, status int, took float64, problem string) step {
	answer := view.Word(view.Bad, "no answer")
	if status > 0 {
		answer = view.Text(strconv.Itoa(status))
	}
	return step{at: at, receiver: receiver, what: "attempt " + strconv.Itoa(n), answer: answer, took: view.Duration(seconds(took)), problem: problem}
}

// timeline is a list of what happened to a message, the oldest first.
func timeline(found string, steps []step) *view.List {
	list := &view.List{Found: found, Columns: view.Texts("When", "Receiver", "What", "Answer").Numbers("Took").Wide("Error")}
	slices.SortStableFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	for i, s := range steps {
		list.Add("t-"+strconv.Itoa(i), view.Ago(s.at, "not stated"), view.Text(s.receiver), view.Text(s.what), s.answer, s.took, view.Sentence(s.problem))
	}
	return list
}
