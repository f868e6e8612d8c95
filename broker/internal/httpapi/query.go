package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// maxWait bounds a long poll, so that proxies on the way do not.
const maxWait = 60 * time.Second

// queryNames are the parameters that routes know, by the end of their patterns; others know none.
var queryNames = map[string][]string{
	"/producers": {"next", "previous"}, "/channels": {"next", "previous"}, "/consumers": {"next", "previous"}, "/dlq": {"next", "previous"},
	"/attempts": {"next", "previous"}, "/messages": {"next", "previous", "status"}, "/scheduled-messages": {"next", "previous", "status"},
	"/queued-jobs": {"limit", "wait"}, "/claim": {"limit", "wait", "timeout"},
}

// checkQuery refuses a parameter that the route does not know: a misspelt one would have no effect. Routes for monitors, which have no
// IDs in their paths and show one thing only, take any: probes add some of their own.
func checkQuery(r *http.Request, pattern string) error {
	known := queryNames[pattern[strings.LastIndexByte(pattern, '/'):]]
	if r.URL.RawQuery == "" || known == nil && !strings.Contains(pattern, "{") {
		return nil
	}
	for name, values := range r.URL.Query() {
		if slices.Contains(known, name) {
			continue
		}
		give := "none, this route has no parameters"
		if known != nil {
			give = "one of " + strings.Join(known, ", ")
		}
		return &httpError{http.StatusBadRequest, fmt.Sprintf("%s: %q with value %q is not known: give %s", textQueryParameter, name, values[0], give)}
	}
	return nil
}

// badQuery says which parameter cannot be used, with which value, and what could.
func badQuery(r *http.Request, name, give string) error {
	return &httpError{http.StatusBadRequest, fmt.Sprintf("%s: %s %q: give %s", textQueryParameter, name, r.URL.Query().Get(name), give)}
}

// statusFilter reads the states that a list is to have; none, and an empty one, mean all.
func statusFilter(r *http.Request) (statuses []int, err error) {
	for _, s := range r.URL.Query()["status"] {
		if s == "" {
			continue
		}
		n, err := strconv.Atoi(s)
		// Messages and scheduled messages have the same two numbers.
		if err != nil || n != int(domain.Acknowledged) && n != int(domain.Dispatched) {
			return nil, &httpError{http.StatusBadRequest, fmt.Sprintf("%s: status %q: give 101 or 102", textQueryParameter, s)}
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
		return 0, badQuery(r, "limit", "a whole number of 0 or more")
	}
	return min(n, maxPageSize), nil
}

// durationOf reads a time such as 20s, or a number of seconds.
func durationOf(r *http.Request, name string, limit time.Duration) (time.Duration, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if seconds, numErr := strconv.ParseUint(s, 10, 31); numErr == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || d < 0 {
		return 0, badQuery(r, name, "a time such as 20s, or a whole number of seconds, 0 or more")
	}
	return min(d, limit), nil
}

// waitOf reads how long a poll may take; the answer must still get out before
// the server gives up on it.
func (a workers) waitOf(r *http.Request) (time.Duration, error) {
	limit := maxWait
	if write := a.opts.WriteTimeout; write > 0 {
		limit = min(limit, write/2)
	}
	return durationOf(r, "wait", limit)
}
