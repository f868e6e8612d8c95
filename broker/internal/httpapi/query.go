package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// maxWait bounds a long poll, so that proxies on the way do not.
const maxWait = 60 * time.Second

// statusFilter reads the states that a list is to have; none, and an empty one, mean all.
func statusFilter(r *http.Request) (statuses []int, err error) {
	for _, s := range r.URL.Query()["status"] {
		if s == "" {
			continue
		}
		n, err := strconv.Atoi(s)
		// Messages and scheduled messages have the same two numbers.
		if err != nil || n != int(domain.Acknowledged) && n != int(domain.Dispatched) {
			return nil, httpserve.BadRequest("%s: status %q: give 101 or 102", textQueryParameter, s)
		}
		statuses = append(statuses, n)
	}
	return statuses, nil
}

// limitOf reads how many jobs are asked for.
func limitOf(r *http.Request) (int, error) {
	s := r.URL.Query().Get("limit")
	if s == "" {
		return pageSize, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, httpserve.BadQuery(r, "limit", "a whole number of 0 or more")
	}
	return min(n, maxPageSize), nil
}

// waitOf reads how long a poll may take; the answer must still get out before
// the server gives up on it.
func (a workers) waitOf(r *http.Request) (time.Duration, error) {
	limit := maxWait
	if write := a.opts.WriteTimeout; write > 0 {
		limit = min(limit, write/2)
	}
	wait, err := httpserve.QueryDuration(r, "wait")
	return min(wait, limit), err
}
