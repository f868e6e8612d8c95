package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// listedView is the view of a message in the list of all messages.
type listedView struct {
	Source   string         `json:"source_id"`
	ID       string         `json:"message_id"`
	Receiver string         `json:"receiver"`
	Status   machine.Status `json:"status"`
	Attempts int            `json:"attempts"`
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
		items = append(items, listedView{l.Source, l.ID, l.Receiver, l.Status, len(l.Attempts), l.ArrivedAt, l.Changed})
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

// getRequest shows the request of a message that waits or has failed. The relay drops it when the message is DONE.
func getRequest(s *store.Store) func(*http.Request, store.Versioned) (any, error) {
	return func(r *http.Request, record store.Versioned) (any, error) {
		e := store.Entry{Versioned: record}
		e, err := s.Request(r.Context(), &e)
		if record.Status == machine.Failed {
			found, listed := s.ListFailed(r.Context(), store.Filter{Source: record.Source, Message: record.ID}, 0, 1)
			if err = listed; err == nil && len(found) > 0 {
				e, err = s.FailedEntry(r.Context(), found[0].Seq)
			}
		}
		return requestView{e.Headers, e.Payload}, err
	}
}
