package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	maxIDs       = 10_000
	maxRate      = 1_000_000
)

// failedView is a [store.Item] with the field names of the HTTP interface.
type failedView struct {
	Seq      uint64         `json:"id,string"`
	Source   string         `json:"source_id"`
	ID       string         `json:"message_id"`
	Receiver string         `json:"receiver"`
	Stage    machine.Stage  `json:"stage"`
	Reason   machine.Reason `json:"reason"`
	Error    string         `json:"error"`
	Time     time.Time      `json:"time"`
	Attempts int            `json:"attempts"`
	Redrives int            `json:"-"`
}

// parseSeq parses a sequence, which is the ID of a failed message or a cursor. It returns 0 for a text that is not a number.
func parseSeq(text string) uint64 {
	seq, _ := strconv.ParseUint(text, 10, 64)
	return seq
}

// listOf returns a list in the form of an answer.
func listOf[T, V any](all []T, view func(T) V) map[string]any {
	items := make([]V, len(all))
	for i, one := range all {
		items[i] = view(one)
	}
	return map[string]any{"items": items}
}

// moment parses the value of a field: a time, or a duration before now. An empty value is the zero time.
func moment(field, value string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, value)
	if err == nil || value == "" {
		return at, nil
	}
	if d, err := time.ParseDuration(value); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, httpserve.BadRequest("%s: %q is neither a time such as 2026-01-02T15:04:05Z nor a duration such as 1h", field, value)
}

// filterBody is a filter for failed messages whose times may also be durations.
type filterBody struct {
	store.Filter
	Since string `json:"since"`
	Until string `json:"until"`
}

func (b filterBody) filter(now time.Time) (f store.Filter, err error) {
	f = b.Filter
	switch {
	case b.Stage != "" && !slices.Contains(machine.Stages, f.Stage):
		return f, httpserve.BadRequest("stage: %q is none of %v", b.Stage, machine.Stages)
	case b.Reason != "" && !slices.Contains(machine.Reasons, f.Reason):
		return f, httpserve.BadRequest("reason: %q is none of %v", b.Reason, machine.Reasons)
	}
	if f.Since, err = moment("since", b.Since, now); err == nil {
		f.Until, err = moment("until", b.Until, now)
	}
	return f, err
}

// query reads the filter and the page of a list from the query of a request.
func (a *API) query(r *http.Request) (f store.Filter, limit int, before uint64, err error) {
	q := r.URL.Query()
	f, err = filterBody{store.Filter{
		Receiver: q.Get("receiver"), Source: q.Get("source"), Message: q.Get("message"), Stage: machine.Stage(q.Get("stage")),
		Reason: machine.Reason(q.Get("reason")),
	}, q.Get("since"), q.Get("until")}.filter(a.store.Now())
	if err != nil {
		return f, 0, 0, err
	}
	limit = defaultLimit
	if value := q.Get("limit"); value != "" {
		if limit, err = strconv.Atoi(value); err != nil || limit < 1 || limit > maxLimit {
			return f, 0, 0, httpserve.BadRequest("limit: %q is not a number from 1 to %d", value, maxLimit)
		}
	}
	if value := q.Get("cursor"); value != "" {
		if before = parseSeq(value); before == 0 {
			return f, 0, 0, httpserve.BadRequest("cursor: %q is none", value)
		}
	}
	return f, limit, before, nil
}

func (a *API) listFailed(r *http.Request) (any, error) {
	f, limit, before, err := a.query(r)
	if err != nil {
		return nil, err
	}
	found, err := a.store.ListFailed(r.Context(), f, before, limit)
	if err != nil {
		return nil, err
	}
	answer := listOf(found, func(i store.Item) failedView { return failedView(i) })
	answer["total"], answer["cursor"] = a.store.CountFailed(), ""
	if len(found) == limit {
		answer["cursor"] = strconv.FormatUint(found[limit-1].Seq, 10)
	}
	return answer, nil
}

type operationBody struct {
	IDs    []string    `json:"ids"`
	Filter *filterBody `json:"filter"`
	DryRun bool        `json:"dry_run"`
	Rate   float64     `json:"rate"` // messages a second; 0: no limit
}

func (b *operationBody) operation(verb string, now time.Time) (bulk.Operation, error) {
	o := bulk.Operation{Kind: verb, Group: verb, By: "admin", Rate: b.Rate}
	var selection store.Selection
	switch {
	case (b.IDs == nil) == (b.Filter == nil):
		return o, httpserve.BadRequest("give either ids or filter; an empty filter is all")
	case len(b.IDs) > maxIDs:
		return o, httpserve.BadRequest("ids: there are %d, and %d are the most", len(b.IDs), maxIDs)
	case b.Rate < 0 || b.Rate > maxRate:
		return o, httpserve.BadRequest("rate: %g is not a number of messages a second from 0, which is no limit, to %d", b.Rate, maxRate)
	}
	for _, id := range b.IDs {
		seq := parseSeq(id)
		if seq == 0 {
			return o, httpserve.BadRequest("ids: %q is none that GET /v1/failed shows", id)
		}
		selection.Seqs = append(selection.Seqs, seq)
	}
	selection.Seqs = slices.Compact(slices.Sorted(slices.Values(selection.Seqs)))
	if b.Filter != nil {
		f, err := b.Filter.filter(now)
		if err != nil {
			return o, err
		}
		selection.Filter = &f
	}
	var err error
	o.Spec, err = json.Marshal(selection)
	return o, err
}

func (a *API) operate(verb string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var body operationBody
		if err := httpserve.ReadJSON(r, &body); err != nil {
			return err
		}
		o, err := body.operation(verb, a.store.Now())
		if err != nil {
			return err
		}
		var n int
		if body.DryRun {
			if n, err = a.work.Operations.Count(r.Context(), o); err == nil {
				httpserve.WriteJSON(w, http.StatusOK, map[string]int{"matched": n})
			}
		} else if o, err = a.work.Operations.Begin(r.Context(), o); err == nil {
			httpserve.WriteJSON(w, http.StatusAccepted, viewOperation(o))
		}
		return err
	}
}

type operationView struct {
	ID      string    `json:"id"`
	Verb    string    `json:"verb"`
	State   string    `json:"state"`
	Matched int       `json:"matched"`
	Done    int       `json:"done"`
	Skipped int       `json:"skipped"`
	Failed  int       `json:"failed"`
	By      string    `json:"by,omitempty"`
	Rate    float64   `json:"rate,omitempty"`
	Began   time.Time `json:"began,omitzero"`
	Changed time.Time `json:"changed,omitzero"`
	// Filter is the filter of the operation. It is nil if the operation has a list of IDs.
	Filter *store.Filter `json:"filter,omitempty"`
}

func viewOperation(o bulk.Operation) operationView {
	var selection store.Selection
	_ = json.Unmarshal(o.Spec, &selection) // an operation that cannot be parsed is shown without its filter
	return operationView{
		ID: o.ID, Verb: o.Kind, State: strings.ToLower(string(o.State)), Matched: o.Matched, Done: o.Done, Skipped: o.Skipped, Failed: o.Failed,
		By: o.By, Rate: o.Rate, Began: o.CreatedAt, Changed: o.ChangedAt, Filter: selection.Filter,
	}
}

func (a *API) listOperations(*http.Request) (any, error) {
	all := a.store.Operations.All()
	slices.SortFunc(all, func(x, y bulk.Operation) int {
		return cmp.Or(y.CreatedAt.Compare(x.CreatedAt), cmp.Compare(x.ID, y.ID))
	})
	return listOf(all, viewOperation), nil
}

// showOperation answers with the operation that do has read or cancelled.
func (a *API) showOperation(do func(*bulk.Runner, context.Context, string) (bulk.Operation, error)) httpserve.Handler {
	return httpserve.Show(func(r *http.Request) (any, error) {
		o, err := do(a.work.Operations, r.Context(), r.PathValue("id"))
		return viewOperation(o), err
	})
}
