package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

type listedView struct {
	Source   string         `json:"source_id"`
	ID       string         `json:"message_id"`
	Receiver string         `json:"receiver"`
	Status   machine.Status `json:"status"`
	Attempts int            `json:"attempts"` // since it arrived or was last redriven
	Arrived  time.Time      `json:"arrived"`
	Changed  time.Time      `json:"changed"`
}

var statuses = []machine.Status{machine.Arrived, machine.Sending, machine.Delivered, machine.Responded, machine.Done, machine.Failed}

// listMessages lists the messages whose records are stored, whatever their status.
func (a *API) listMessages(r *http.Request) (any, error) {
	q, now := r.URL.Query(), a.store.Now()
	status := machine.Status(q.Get("status"))
	if status != "" && !slices.Contains(statuses, status) {
		return nil, httpserve.BadRequest("status: %q is none of %v", status, statuses)
	}
	since, err := moment("since", q.Get("since"), now)
	if err != nil {
		return nil, err
	}
	until, err := moment("until", q.Get("until"), now)
	if err != nil {
		return nil, err
	}
	limit, before, err := pageOf(q)
	if err != nil {
		return nil, err
	}
	is := func(name, value string) bool { return q.Get(name) == "" || q.Get(name) == value }
	found, next, err := a.store.List(r.Context(), before, limit, func(l store.Listed) bool {
		return is("receiver", l.Receiver) && is("source", l.Source) && is("message", l.ID) && (status == "" || status == l.Status) &&
			(since.IsZero() || !l.Changed.Before(since)) && (until.IsZero() || l.Changed.Before(until))
	})
	items := []listedView{}
	for _, l := range found {
		items = append(items, listedView{l.Source, l.ID, l.Receiver, l.Status, l.Attempt, l.ArrivedAt, l.Changed})
	}
	page := map[string]any{"items": items}
	if next > 0 {
		page["cursor"] = strconv.FormatUint(next, 10)
	}
	return page, err
}

// requestView is what a sender has sent.
type requestView struct {
	Headers map[string]string `json:"headers"`
	Payload []byte            `json:"payload"` // base64
}

// getRequest shows the request of a message that waits or is on the list of failed messages. Later the relay does not keep it.
func getRequest(s *store.Store) func(*http.Request, store.Versioned) (any, error) {
	return func(r *http.Request, record store.Versioned) (any, error) {
		e := store.Entry{Versioned: record}
		if record.Status != machine.Failed {
			e, err := s.Request(r.Context(), &e)
			return requestView{e.Headers, e.Payload}, err
		}
		found, err := s.ListFailed(r.Context(), store.Filter{Source: record.Source, Message: record.ID}, 0, 1)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%w: the request of message %q of source %q is not kept any more: it is off the list of failed messages", store.ErrNotFound,
				record.ID, record.Source)
		}
		if err == nil {
			e, err = s.FailedEntry(r.Context(), found[0].Seq)
		}
		return requestView{e.Headers, e.Payload}, err
	}
}
