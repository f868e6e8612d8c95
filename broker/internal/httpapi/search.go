package httpapi

import (
	"errors"
	"math"
	"net/http"
	"strings"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// searchFields are the query parameters that turn a list of messages into a search.
var searchFields = []string{"id", "eventType", "metadata", "since", "until", "limit"}

// A request stops after this many index lookups or message reads. The next page continues there.
const (
	maxSearchLooks = 1000
	maxSearchReads = 1000
)

func (a messages) search(r *http.Request, page domain.Page) (s domain.ReplaySpec, eventTypes string, limit int, err error) {
	query := r.URL.Query()
	if page.Before != nil {
		return s, "", 0, httpserve.BadRequest("invalid query parameter: previous: a search has no previous pages, give next")
	}
	if limit, err = limitOf(r, 1); err != nil {
		return s, "", 0, err
	}
	metadata := map[string]string{}
	for _, pair := range query["metadata"] {
		name, value, ok := strings.Cut(pair, ":")
		if !ok || name == "" {
			return s, "", 0, httpserve.BadRequest("invalid query parameter: metadata %q: give NAME:VALUE, such as X-Tenant:acme", pair)
		}
		metadata[name] = strings.TrimSpace(value)
	}
	s, err = replayRequest{Since: query.Get("since"), Until: query.Get("until"), Message: query.Get("id"), Metadata: metadata}.spec()
	if err != nil {
		return s, "", 0, err
	}
	if eventTypes, err = domain.ParseEventTypes(query.Get("eventType")); err != nil {
		err = httpserve.BadRequest("invalid query parameter: eventType: %v", err)
	}
	return s, eventTypes, limit, err
}

// searchMessages lists matching messages, newest first. A page may have fewer items than the limit, even none, although a next page exists.
func (a messages) searchMessages(r *http.Request, c domain.Channel, page domain.Page) (any, error) {
	s, eventTypes, limit, err := a.search(r, page)
	if err != nil {
		return nil, err
	}
	result := listResult{Result: []string{}, Pages: map[string]string{}}
	before := uint64(math.MaxUint64)
	if page.After != nil {
		before = page.After.Seq
	}
	if s.Message != "" { // at most one
		m, err := a.b.Messages.Message(r.Context(), c.ID, s.Message)
		if errors.Is(err, domain.ErrNotFound) {
			return result, nil
		}
		if s.TakesTime(m.ReceivedAt) && domain.MatchesEventType(eventTypes, m.EventType) && work.TakesMessage(s, m) {
			result.Result = append(result.Result, link(r, "channel", c.ID, "message", m.ID))
		}
		return result, err
	}
	reads := 0
	for looks := 0; before != 0 && len(result.Result) < limit && looks < maxSearchLooks && reads < maxSearchReads; looks++ {
		var seqs []uint64
		seqs, before = a.b.Index.SearchMessages(c.ID, s, eventTypes, before, limit-len(result.Result))
		found, err := a.b.Messages.InOrder(r.Context(), seqs)
		if err != nil {
			return nil, err
		}
		reads += len(seqs)
		for _, m := range found {
			if work.TakesMessage(s, m) {
				result.Result = append(result.Result, link(r, "channel", c.ID, "message", m.ID))
			}
		}
	}
	if before != 0 {
		result.Pages["next"] = pageLink(r, "next", domain.Position{Seq: before})
	}
	return result, nil
}
