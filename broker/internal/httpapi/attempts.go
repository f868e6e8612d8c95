package httpapi

import (
	"net/http"
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

func (a messages) jobsOfMessage(r *http.Request, m domain.Message) ([]messageJob, error) {
	jobs := a.b.Index.JobsOf(m.Channel, m.Seq)
	if err := a.b.Records.Complete(r.Context(), jobs); err != nil {
		return nil, err
	}
	models := []messageJob{}
	for _, j := range jobs {
		k, ok := a.b.Index.Consumer(j.ID.Consumer)
		if !ok {
			continue
		}
		k.CallbackURL = a.shownURL(r, k.CallbackURL)
		shown := messageJob{jobModel: modelOfJob(j, k), ConsumerURL: link(r, "channel", k.Channel, "consumer", k.ID)}
		if k.Type == domain.Push {
			shown.Attempts = &j.Attempts
			shown.AttemptsURL = link(r, "channel", k.Channel, "consumer", k.ID, "job", j.ID.String()) + "/attempts"
		}
		models = append(models, shown)
	}
	return models, nil
}

// listAttempts lists the last callbacks of a job and their answers, newest first.
func (a workers) listAttempts(r *http.Request, k domain.Consumer) (any, error) {
	id, err := domain.ParseJobID(r.PathValue("job"))
	if err != nil || id.Consumer != k.Number {
		return nil, errNotFound
	}
	attempts, err := a.b.Jobs.AttemptsOf(r.Context(), id, maxPageSize)
	if err != nil {
		return nil, err
	}
	operator := a.manages(r)
	models := make([]attemptModel, len(attempts))
	for i, t := range attempts {
		models[i] = attemptModel{
			Attempt: t.Number, StartedAt: t.StartedAt, Duration: t.Duration.Seconds(), StatusCode: t.StatusCode, Error: t.Error, ResponseHeaders: t.Header,
		}
		if !operator {
			models[i].Error = mask.Addresses(t.Error)
		}
		models[i].ResponseBody, models[i].ResponseBodyEncoding = payloadText(t.Body)
		if t.Header == nil {
			models[i].ResponseHeaders = map[string]string{}
		}
	}
	return map[string][]attemptModel{"Result": models}, nil
}
