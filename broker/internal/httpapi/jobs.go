package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/tokens"
)

const (
	// maxIncrement is the maximum timeout that a request may add to a claim, in seconds.
	maxIncrement = 7 * 24 * 3600
	// maxWait is the maximum duration of a long poll. It is short enough that proxies do not cut the poll off.
	maxWait = 60 * time.Second
)

type queuedMessage struct {
	MessageID       string
	Payload         string
	PayloadEncoding string `json:",omitempty"`
	Headers         map[string]string
	ContentType     string
	EventType       string `json:",omitempty"`
}

type queuedJob struct {
	ID                 string
	Priority           int
	IncrementalTimeout int
	Message            queuedMessage
	Replay             string     `json:",omitempty"`
	ClaimToken         string     `json:",omitempty"`
	ClaimExpiresAt     *time.Time `json:",omitempty"`
}

// checkConsumer checks both tokens of a request in the contract's order. unknown is the error for an unknown consumer, which depends on the route.
func (a *API) checkConsumer(r *http.Request, unknown error) (domain.Consumer, error) {
	if _, err := a.checkChannelToken(r); err != nil {
		return domain.Consumer{}, err
	}
	k, err := a.consumer(r)
	if errors.Is(err, domain.ErrNotFound) {
		return k, unknown
	}
	if err != nil {
		return k, err
	}
	if !tokens.Same(k.Token, r.Header.Get("X-Broker-Consumer-Token")) {
		return k, refuse(http.StatusForbidden, "consumer token does not match")
	}
	return k, nil
}

// checkOwner makes the checks for requests that delete dead jobs.
func (a *API) checkOwner(r *http.Request) (domain.Consumer, error) {
	if a.managesByToken(r) {
		return a.consumer(r)
	}
	return a.checkConsumer(r, errNotFound)
}

func (a workers) checkPull(r *http.Request) (domain.Consumer, error) {
	k, err := a.checkConsumer(r, refuse(http.StatusUnauthorized, "consumer could not be found"))
	if err != nil {
		return k, err
	}
	if k.Type != domain.Pull {
		return k, refuse(http.StatusPreconditionFailed, "consumer not pull based")
	}
	return k, nil
}

func (a workers) checkJob(r *http.Request) (domain.Job, error) {
	k, err := a.checkPull(r)
	if err != nil {
		return domain.Job{}, err
	}
	return a.jobOf(r.Context(), k, r.PathValue("job"))
}

func (a workers) jobOf(ctx context.Context, k domain.Consumer, text string) (domain.Job, error) {
	id, err := domain.ParseJobID(text)
	if err != nil {
		return domain.Job{}, errNoJob
	}
	j, err := a.b.Records.Job(ctx, id)
	switch {
	case errors.Is(err, domain.ErrNotFound), j.Status == domain.Removed:
		return j, errNoJob
	case err != nil:
		return j, err
	case id.Consumer != k.Number:
		return j, refuse(http.StatusUnauthorized, "job could not be found")
	}
	return j, nil
}

func limitOf(r *http.Request, least int) (limit int, err error) {
	limit = pageSize
	if s := r.URL.Query().Get("limit"); s != "" {
		if limit, err = strconv.Atoi(s); err != nil || limit < least {
			return 0, httpserve.BadQuery(r, "limit", fmt.Sprintf("a whole number of %d or more", least))
		}
	}
	return min(limit, maxPageSize), nil
}

// pollContext returns a context that also ends when the server stops.
func (a *API) pollContext(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	stay := context.AfterFunc(a.opts.Stopping, cancel)
	return ctx, func() { stay(); cancel() }
}

// poll answers a request for jobs with the result of find. The wait ends before the server's write timeout, so that the response can be sent. If a
// stop ends the wait, the response has no jobs.
func (a workers) poll(find func(ctx context.Context, r *http.Request, k domain.Consumer, limit int, wait time.Duration) ([]work.Work,
	error),
) httpserve.Handler {
	return httpserve.ShowOf(a.checkPull, func(r *http.Request, k domain.Consumer) (any, error) {
		limit, err := limitOf(r, 0)
		if err != nil {
			return nil, err
		}
		wait, err := httpserve.QueryDuration(r, "wait", 0)
		if err != nil {
			return nil, err
		}
		longest := maxWait
		if write := a.opts.WriteTimeout; write > 0 {
			longest = min(longest, write/2)
		}
		ctx, cancel := a.pollContext(r)
		defer cancel()
		found, err := find(ctx, r, k, limit, min(wait, longest))
		if err != nil && (!errors.Is(err, context.Canceled) || r.Context().Err() != nil) {
			return nil, err
		}
		result := make([]queuedJob, len(found))
		for i, w := range found {
			result[i] = modelOfWork(w)
		}
		return map[string][]queuedJob{"Result": result}, nil
	})
}

func (a workers) queuedJobs(ctx context.Context, r *http.Request, k domain.Consumer, limit int, wait time.Duration) ([]work.Work, error) {
	return a.b.Jobs.QueuedJobs(ctx, k, r.RemoteAddr, limit, wait)
}

func (a workers) claim(ctx context.Context, r *http.Request, k domain.Consumer, limit int, wait time.Duration) ([]work.Work, error) {
	timeout, err := httpserve.QueryDuration(r, "timeout", maxIncrement*time.Second)
	if err != nil {
		return nil, err
	}
	return a.b.Jobs.ClaimJobs(ctx, k, limit, timeout.Truncate(time.Second), wait)
}

func modelOfWork(item work.Work) queuedJob {
	j, m := item.Job, item.Message
	shown := queuedJob{
		ID: j.ID.String(), Priority: j.Priority, IncrementalTimeout: int(j.IncrementalTimeout / time.Second), Replay: j.Replay,
		Message: queuedMessage{MessageID: m.ID, Headers: shownHeaders(m.Headers), ContentType: m.ContentType, EventType: m.EventType},
	}
	shown.Message.Payload, shown.Message.PayloadEncoding = payloadText(m.Payload)
	if j.Status == domain.Inflight {
		shown.ClaimToken, shown.ClaimExpiresAt = j.Claim, &j.Due
	}
	return shown
}

type jobDetail struct {
	jobModel
	MessageURL    string
	ChannelURL    string
	ConsumerURL   string
	ProducerURL   string
	JobRequeueURL string
}

func requeueURL(r *http.Request, k domain.Consumer, j domain.Job) string {
	return link(r, "channel", k.Channel, "consumer", k.ID, "job", j.ID.String(), "requeue-dead-job")
}

func (a workers) getJob(r *http.Request, j domain.Job) (any, error) {
	k, err := a.consumer(r)
	if err != nil {
		return nil, err
	}
	if j, err = a.b.Records.Refresh(r.Context(), j.ID); err != nil {
		return nil, jobGone(err)
	}
	found, err := a.b.Jobs.WithMessages(r.Context(), []domain.Job{j})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errNoJob
	}
	detail := jobDetail{
		jobModel: modelOfJob(j, k), MessageURL: link(r, "channel", k.Channel, "message", found[0].Message.ID),
		ChannelURL: link(r, "channel", k.Channel), ConsumerURL: link(r, "channel", k.Channel, "consumer", k.ID),
		ProducerURL: link(r, "producer", found[0].Message.Producer),
	}
	if j.Status == domain.Dead {
		detail.JobRequeueURL = requeueURL(r, k, j)
	}
	return detail, nil
}

// transitionRequest is the body of a worker's request. Its numbers must be integers of 0 or more.
type transitionRequest struct {
	NextState          string
	IncrementalTimeout uint32
	ClaimToken         string
}

func (a workers) transitionJob(w http.ResponseWriter, r *http.Request, j domain.Job) error {
	var req transitionRequest
	if err := httpserve.ReadJSON(r, &req); err != nil {
		return err
	}
	return httpserve.Done(w, http.StatusAccepted, a.transition(r.Context(), j, req))
}

func (a workers) transition(ctx context.Context, j domain.Job, req transitionRequest) error {
	timeout, err := increment(req.IncrementalTimeout)
	if err != nil {
		return err
	}
	next, known := domain.ParseJobStatus(req.NextState)
	if !known {
		return fmt.Errorf("%w: NextState %q: give INFLIGHT, DELIVERED or DEAD", domain.ErrInvalidTransition, req.NextState)
	}
	_, err = a.b.Jobs.TransitionJob(ctx, j.ID, domain.Request{Next: next, Timeout: timeout, Claim: req.ClaimToken})
	return jobGone(err)
}

func increment(seconds uint32) (time.Duration, error) {
	if seconds > maxIncrement {
		return 0, httpserve.BadRequest("IncrementalTimeout is too long: %d seconds: give at most %d", seconds, maxIncrement)
	}
	return time.Duration(seconds) * time.Second, nil
}

// jobGone converts the error for a deleted job to the error for a job that never existed.
func jobGone(err error) error {
	if errors.Is(err, domain.ErrNotFound) {
		return errNoJob
	}
	return err
}

func (a workers) extendJob(r *http.Request, j domain.Job) (any, error) {
	var req struct {
		IncrementalTimeout uint32
		ClaimToken         string
	}
	if err := httpserve.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	timeout, err := increment(req.IncrementalTimeout)
	if err != nil {
		return nil, err
	}
	j, err = a.b.Jobs.ExtendJob(r.Context(), j.ID, req.ClaimToken, timeout)
	return map[string]any{"ID": j.ID.String(), "ClaimExpiresAt": j.Due}, err
}

func (a workers) requeueJob(w http.ResponseWriter, r *http.Request, j domain.Job) error {
	err := a.b.Jobs.RequeueJob(r.Context(), j.ID)
	if errors.Is(err, domain.ErrInvalidTransition) {
		return refuse(http.StatusBadRequest, "job could not be found")
	}
	return httpserve.Done(w, http.StatusAccepted, jobGone(err))
}

func (a workers) deleteJob(w http.ResponseWriter, r *http.Request) error {
	k, err := a.checkOwner(r)
	if err != nil {
		return err
	}
	id, err := domain.ParseJobID(r.PathValue("job"))
	if err != nil || id.Consumer != k.Number {
		return errNotFound
	}
	return httpserve.Done(w, http.StatusNoContent, a.b.Jobs.RemoveJob(r.Context(), id))
}

type batchTransition struct {
	ID string
	transitionRequest
}

// batchResult is the response that the transition would have got as a request of its own.
type batchResult struct {
	ID     string
	Status int
	Error  string `json:",omitempty"`
}

// transitionJobs makes several transitions, each as in a request of its own. They wait for the disk together, which is faster than completing one job
// after the other.
func (a workers) transitionJobs(r *http.Request, k domain.Consumer) (any, error) {
	var req struct{ Transitions []batchTransition }
	if err := httpserve.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	if err := checkBatch(req.Transitions); err != nil {
		return nil, err
	}
	results := make([]batchResult, len(req.Transitions))
	var wg sync.WaitGroup
	for i, t := range req.Transitions {
		wg.Go(func() { results[i] = a.transitionOne(r.Context(), k, t) })
	}
	wg.Wait()
	return map[string][]batchResult{"Result": results}, nil
}

// checkBatch refuses an empty batch, too many transitions, and two transitions of the same job, because transitions run in parallel, without an
// order.
func checkBatch(transitions []batchTransition) error {
	if len(transitions) == 0 {
		return httpserve.BadRequest("Transitions is empty: give 1 to %d of them", maxPageSize)
	}
	if n := len(transitions); n > maxPageSize {
		return httpserve.BadRequest("%d transitions: at most %d are taken at a time", n, maxPageSize)
	}
	seen := make(map[string]bool, len(transitions))
	for _, t := range transitions {
		if seen[t.ID] {
			return httpserve.BadRequest("job %q has two transitions: send one after the other", t.ID)
		}
		seen[t.ID] = true
	}
	return nil
}

// transitionOne runs in its own goroutine, so it recovers from a panic, which would otherwise end the process.
func (a workers) transitionOne(ctx context.Context, k domain.Consumer, t batchTransition) (result batchResult) {
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("transition panicked", "job", t.ID, "panic", p, "stack", string(debug.Stack()))
			result = batchResult{ID: t.ID, Status: http.StatusInternalServerError, Error: "internal error"}
		}
	}()
	j, err := a.jobOf(ctx, k, t.ID)
	if err == nil {
		err = a.transition(ctx, j, t.transitionRequest)
	}
	if err == nil {
		return batchResult{ID: t.ID, Status: http.StatusAccepted}
	}
	e := describe(err)
	if e.Status >= http.StatusInternalServerError && ctx.Err() == nil {
		a.log.Warn("transition failed", "job", t.ID, "error", err)
	}
	return batchResult{ID: t.ID, Status: e.Status, Error: e.Message}
}
