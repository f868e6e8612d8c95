package httpapi

import (
	"net/http"
	"slices"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/mask"
)

// messageJob is a job as listed with its message.
type messageJob struct {
	jobModel
	ConsumerURL string
	// Attempts and AttemptsURL are for push consumers.
	Attempts    *int   `json:",omitempty"`
	AttemptsURL string `json:",omitempty"`
}

type attemptModel struct {
	Attempt              int
	StartedAt            time.Time
	Duration             float64 // seconds
	StatusCode           int
	Error                string
	ResponseHeaders      map[string]string
	ResponseBody         string
	ResponseBodyEncoding string `json:",omitempty"`
}

type attemptList struct {
	Result []attemptModel
	Pages  map[string]string
}

// jobsOfMessage returns the jobs of a message, with the number of attempts for push consumers.
func (a messages) jobsOfMessage(r *http.Request, m domain.Message) ([]messageJob, error) {
	jobs := a.Jobs.JobsOf(m.Channel, m.Seq)
	if err := a.Jobs.Complete(r.Context(), jobs); err != nil {
		return nil, err
	}
	models := []messageJob{}
	for _, j := range jobs {
		k, ok := a.Directory.ConsumerByNumber(j.ID.Consumer)
		if !ok {
			continue
		}
		k.CallbackURL = a.shownURL(r, k.CallbackURL)
		shown := messageJob{jobModel: modelOfJob(j, k), ConsumerURL: link("channel", k.Channel, "consumer", k.ID)}
		if k.Type == domain.Push {
			shown.Attempts = &j.Attempts
			shown.AttemptsURL = link("channel", k.Channel, "consumer", k.ID, "job", j.ID.String()) + "/attempts"
		}
		models = append(models, shown)
	}
	return models, nil
}

// listAttempts lists the callbacks of a job and their answers, newest first.
func (a workers) listAttempts(r *http.Request, k domain.Consumer) (any, error) {
	id, err := domain.ParseJobID(r.PathValue("job"))
	if err != nil || id.Consumer != k.Number {
		return nil, errNotFound
	}
	page, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	after := 0
	switch {
	case page.After != nil:
		after = int(page.After.At)
	case page.Before != nil:
		after = int(page.Before.At) + page.Limit + 1
	}
	attempts, err := a.b.Jobs.AttemptsOf(r.Context(), id, after, page.Limit)
	if err != nil {
		return nil, err
	}
	if page.Before != nil { // the first page may be shorter than the limit
		attempts = slices.DeleteFunc(attempts, func(t domain.Attempt) bool { return int64(t.Number) <= page.Before.At })
	}
	operator := a.manages(r)
	list := attemptList{Result: make([]attemptModel, len(attempts))}
	for i, t := range attempts {
		list.Result[i] = attemptModel{
			Attempt: t.Number, StartedAt: t.StartedAt, Duration: t.Duration.Seconds(), StatusCode: t.StatusCode, Error: t.Error, ResponseHeaders: t.Header,
		}
		if !operator {
			list.Result[i].Error = mask.Addresses(t.Error)
		}
		list.Result[i].ResponseBody, list.Result[i].ResponseBodyEncoding = payloadText(t.Body)
		if t.Header == nil {
			list.Result[i].ResponseHeaders = map[string]string{}
		}
	}
	list.Pages = pageLinks(r, attempts, func(t domain.Attempt) domain.Position { return domain.Position{At: int64(t.Number)} })
	return list, nil
}
