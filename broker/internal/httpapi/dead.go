package httpapi

import (
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

// anyDead is an item in the list of all consumers' dead jobs.
type anyDead struct {
	ID, ChannelID, ConsumerID, MessageID, ProducedBy string
	DeadSince                                        time.Time
	Reason                                           string
	// StatusCode and Attempts are set for jobs with callbacks.
	StatusCode int `json:",omitempty"`
	Attempts   int `json:",omitempty"`
}

type anyDeadList struct {
	Result []anyDead
	Next   time.Time `json:",omitzero"`
}

// deadRequest selects dead jobs, of all consumers, for an operation.
type deadRequest struct {
	Consumer, Producer, Message, Reason string
	Since, Until                        string
	DryRun                              bool
	Rate                                *float64
}

// filter validates the fields. It also returns the rate.
func (q deadRequest) filter() (domain.DeadFilter, float64, error) {
	f := domain.DeadFilter{Consumer: q.Consumer, Producer: q.Producer, Message: q.Message, Reason: q.Reason}
	if q.Reason != "" && !slices.Contains(domain.DeadReasons, q.Reason) {
		return f, 0, badField("Reason", fmt.Errorf("%q is none of %s", q.Reason, strings.Join(domain.DeadReasons, ", ")))
	}
	s, err := replayRequest{Since: q.Since, Until: q.Until, Rate: q.Rate}.spec()
	f.Since, f.Until = s.Since, s.Until
	return f, s.Rate, err
}

// listAllDead lists dead jobs of all consumers, newest first. A page may have fewer items than the limit, even none, although a next page exists.
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
				continue // it has just been deleted
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

// changeDead starts an operation on dead jobs of all consumers, or counts them.
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
		return a.begin(w, r, o, req.DryRun, "operation", httpserve.Link(r, deadOperations))
	}
}

type deadOperation struct {
	operationModel
	URL    string
	Done   int
	Filter domain.DeadFilter
}

func modelOfDeadOperation(r *http.Request, o bulk.Operation) deadOperation {
	model := deadOperation{operationModel: modelOfOperation(o), URL: httpserve.Link(r, deadOperations) + o.ID, Done: o.Done}
	_ = json.Unmarshal(o.Spec, &model.Filter) // an operation that cannot be parsed is shown without its filter
	return model
}

func showDeadOperation(r *http.Request, o bulk.Operation) (any, error) {
	return modelOfDeadOperation(r, o), nil
}

func (a operators) listDeadOperations(r *http.Request) (any, error) {
	list := []deadOperation{}
	for _, o := range a.operations(false) {
		list = append(list, modelOfDeadOperation(r, o))
	}
	return map[string]any{"Result": list}, nil
}

func (a operators) deadOperation(r *http.Request) (bulk.Operation, error) {
	return a.b.Replays.Operation(r.Context(), r.PathValue("operation"), func(o bulk.Operation) bool { return !domain.OfConsumer(o.Kind) })
}
