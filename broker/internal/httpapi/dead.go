package httpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// anyDead is a dead job in the list of all consumers' dead jobs.
type anyDead struct {
	ID, ChannelID, ConsumerID, MessageID, ProducedBy string
	DeadSince                                        time.Time
	Reason                                           string
	// StatusCode and Attempts are those of callbacks.
	StatusCode int `json:",omitempty"`
	Attempts   int `json:",omitempty"`
}

type anyDeadList struct {
	Result []anyDead
	Next   time.Time `json:",omitzero"`
}

// deadRequest selects dead jobs of all consumers for an operation.
type deadRequest struct {
	Consumer, Producer, Message, Reason string
	Since, Until                        string
	DryRun                              bool
	Rate                                *float64
}

// filter validates the fields, of which it also returns the rate.
func (q deadRequest) filter() (domain.DeadFilter, float64, error) {
	f := domain.DeadFilter{Consumer: q.Consumer, Producer: q.Producer, Message: q.Message, Reason: q.Reason}
	if q.Reason != "" && !slices.Contains(domain.DeadReasons, q.Reason) {
		return f, 0, badField("Reason", fmt.Errorf("%q is none of %s", q.Reason, strings.Join(domain.DeadReasons, ", ")))
	}
	s, err := replayRequest{Since: q.Since, Until: q.Until, Rate: q.Rate}.spec()
	f.Since, f.Until = s.Since, s.Until
	return f, s.Rate, err
}

// listAllDead lists dead jobs of all consumers, newest first. A page may have fewer than the limit, even none, and still a next one.
func (a operators) listAllDead(r *http.Request) (any, error) {
	query := r.URL.Query()
	q := deadRequest{
		Consumer: query.Get("consumer"), Producer: query.Get("producer"), Message: query.Get("message"), Reason: query.Get("reason"),
		Since: query.Get("since"), Until: query.Get("until"),
	}
	f, _, err := q.filter()
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(r, 1)
	if err != nil {
		return nil, err
	}
	list := anyDeadList{Result: []anyDead{}}
	for looks := 0; looks < maxSearchReads && len(list.Result) < limit; looks += limit {
		var found []work.Work
		if found, list.Next, err = a.b.Jobs.Dead(r.Context(), f, limit); err != nil {
			return nil, err
		}
		for _, w := range found {
			k, known := a.b.Index.Consumer(w.Job.ID.Consumer)
			if !known {
				continue // it was just deleted
			}
			list.Result = append(list.Result, anyDead{
				w.Job.ID.String(), k.Channel, k.ID, w.Message.ID, w.Message.Producer, w.Job.ChangedAt, domain.DeadReason(w.Job, k), w.Job.Code, w.Job.Attempts,
			})
		}
		if f.Until = list.Next; list.Next.IsZero() {
			break
		}
	}
	return list, nil
}

const deadOperations = "/dead-jobs/operations/"

// changeDead begins an operation on dead jobs of all consumers, or counts them.
func (a operators) changeDead(kind string) httpserve.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var req deadRequest
		if err := httpserve.ReadJSON(r, &req); err != nil {
			return err
		}
		f, rate, err := req.filter()
		if err != nil {
			return err
		}
		o, err := work.NewOperation(kind, kind, f, rate, a.who(r))
		if err != nil {
			return err
		}
		return begin(w, r, a.b.Replays.Operations, o, req.DryRun, "operation", func(id string) string { return httpserve.Link(r, deadOperations+id) })
	}
}

type deadOperation struct {
	ID, URL, Kind, State string
	Count, Done          int
	Skipped, Failed      int
	Filter               domain.DeadFilter
	By                   string `json:",omitempty"`
	Rate                 float64
	CreatedAt, ChangedAt time.Time
}

func showDeadOperation(r *http.Request, o bulk.Operation) (any, error) {
	model := deadOperation{
		ID: o.ID, URL: httpserve.Link(r, deadOperations+o.ID), Kind: o.Kind, State: string(o.State), Count: o.Matched, Done: o.Done, Skipped: o.Skipped,
		Failed: o.Failed,
		By:     o.By, Rate: o.Rate, CreatedAt: o.CreatedAt, ChangedAt: o.ChangedAt,
	}
	_ = json.Unmarshal(o.Spec, &model.Filter) // an operation that cannot be parsed is shown without its filter
	return model, nil
}

func (a operators) listDeadOperations(r *http.Request) (any, error) {
	all := slices.DeleteFunc(a.b.Parts.Replays.All(), func(o bulk.Operation) bool { return domain.OfConsumer(o.Kind) })
	slices.SortFunc(all, func(x, y bulk.Operation) int {
		return cmp.Or(y.CreatedAt.Compare(x.CreatedAt), cmp.Compare(x.ID, y.ID))
	})
	list := []any{}
	for _, o := range all {
		model, err := showDeadOperation(r, o)
		if err != nil {
			return nil, err
		}
		list = append(list, model)
	}
	return map[string]any{"Result": list}, nil
}

func (a operators) deadOperation(r *http.Request) (bulk.Operation, error) {
	return a.b.Replays.Operation(r.Context(), r.PathValue("operation"), func(o bulk.Operation) bool { return !domain.OfConsumer(o.Kind) })
}
