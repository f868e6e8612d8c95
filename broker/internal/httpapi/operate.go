package httpapi

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/tokens"
)

type deadJob struct {
	jobModel
	MessageURL    string
	JobRequeueURL string
}

func (a operators) listDead(r *http.Request, k domain.Consumer) (any, error) {
	k.CallbackURL = a.shownURL(r, k.CallbackURL)
	page, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	jobs := a.b.Index.ListDead(k.Number, page)
	found, err := a.b.Jobs.WithMessages(r.Context(), jobs)
	if err != nil {
		return nil, err
	}
	dead := make([]deadJob, 0, len(found))
	for _, w := range found {
		dead = append(dead, deadJob{modelOfJob(w.Job, k), link(r, "channel", k.Channel, "message", w.Message.ID), requeueURL(r, k, w.Job)})
	}
	pages := pageLinks(r, jobs, func(j domain.Job) domain.Position {
		return domain.Position{At: j.ChangedAt.UnixNano(), Seq: j.ID.Seq}
	})
	return map[string]any{"DeadJobs": dead, "Pages": pages}, nil
}

// listedJob is a job of any status and of either type of consumer.
type listedJob struct {
	ID              string
	MessageID       string
	Status          string
	StatusChangedAt time.Time
	Priority        int
	Retries         int
	Attempts        int
	Due             time.Time `json:",omitzero"`
	Replay          string    `json:",omitempty"`
}

type jobList struct {
	Result []listedJob
	Pages  map[string]string
}

// listJobs lists the jobs of a consumer in a status, or the job of one message, newest message first. A page may have fewer items than the limit,
// even none, although a next page exists.
func (a operators) listJobs(r *http.Request, k domain.Consumer) (any, error) {
	jobs, next, err := a.findJobs(r, k)
	if err != nil {
		return nil, err
	}
	if err := a.b.Records.Complete(r.Context(), jobs); err != nil {
		return nil, err
	}
	found, err := a.b.Jobs.WithMessages(r.Context(), jobs)
	if err != nil {
		return nil, err
	}
	list := jobList{Result: []listedJob{}, Pages: map[string]string{}}
	for _, w := range found {
		j := w.Job
		list.Result = append(list.Result, listedJob{
			j.ID.String(), w.Message.ID, j.Status.String(), j.ChangedAt, j.Priority, j.Retries, j.Attempts, j.Due, j.Replay,
		})
	}
	if next != 0 {
		list.Pages["next"] = pageLink(r, "next", domain.Position{Seq: next})
	}
	return list, nil
}

func (a operators) findJobs(r *http.Request, k domain.Consumer) (jobs []domain.Job, next uint64, err error) {
	query := r.URL.Query()
	page, err := pageOf(r)
	if err != nil {
		return nil, 0, err
	}
	limit, err := limitOf(r, 1)
	if err != nil {
		return nil, 0, err
	}
	status, known := domain.ParseJobStatus(query.Get("status"))
	if query.Get("status") != "" && !known {
		return nil, 0, httpserve.BadQuery(r, "status", "QUEUED, INFLIGHT, DELIVERED or DEAD")
	}
	if id := query.Get("message"); id != "" { // at most one job
		m, err := a.b.Messages.Message(r.Context(), k.Channel, id)
		if err != nil {
			return nil, 0, err
		}
		another := func(j domain.Job) bool { return j.ID.Consumer != k.Number || status != 0 && j.Status != status }
		return slices.DeleteFunc(a.b.Index.JobsOf(k.Channel, m.Seq), another), 0, nil
	}
	next = math.MaxUint64
	if page.After != nil {
		next = page.After.Seq
	}
	for looks := 0; next != 0 && len(jobs) < limit && looks < maxSearchLooks; looks++ {
		var more []domain.Job
		more, next = a.b.Index.ListJobs(k.Number, status, next, limit-len(jobs))
		jobs = append(jobs, more...)
	}
	return jobs, next, nil
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

// listAttempts lists the last callbacks of a job and the answers to them, newest first.
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
			Attempt: t.Number, StartedAt: t.StartedAt, Duration: t.Duration.Seconds(), StatusCode: t.StatusCode, Error: t.Error,
			ResponseHeaders: shownHeaders(t.Header),
		}
		if !operator {
			models[i].Error = mask.Addresses(t.Error)
		}
		models[i].ResponseBody, models[i].ResponseBodyEncoding = payloadText(t.Body)
	}
	return map[string][]attemptModel{"Result": models}, nil
}

func (a operators) requeueDead(w http.ResponseWriter, r *http.Request) error {
	if err := checkForm(r); err != nil {
		return err
	}
	k, err := a.consumer(r)
	if err != nil && (!errors.Is(err, domain.ErrNotFound) || a.opts.Admin.Token == "" || a.isAdmin(r)) {
		return err
	}
	if err := readForm(r); err != nil {
		return err
	}
	if err != nil || !tokens.Same(k.Token, r.PostFormValue("requeue")) {
		return refuse(http.StatusBadRequest, "`requeue` form param must match consumer token")
	}
	_, err = a.b.Jobs.ChangeDead(r.Context(), k, a.b.Jobs.RequeueJob)
	return httpserve.Done(w, http.StatusAccepted, err)
}

func (a operators) purgeDead(r *http.Request) (any, error) {
	k, err := a.checkOwner(r)
	if err != nil {
		return nil, err
	}
	n, err := a.b.Jobs.ChangeDead(r.Context(), k, a.b.Jobs.RemoveJob)
	return map[string]int{"deletedCount": n}, err
}

type statusCount struct {
	Status              int       `json:"status"`
	Count               int       `json:"count"`
	OldestItemTimestamp time.Time `json:"oldestItemTimestamp"`
	NewestItemTimestamp time.Time `json:"newestItemTimestamp"`
}

func (a operators) jobStatus(_ *http.Request) (any, error) {
	result := map[string]map[string][]statusCount{}
	for _, k := range a.Directory.Consumers.List("") {
		for _, c := range a.b.Index.CountJobs(k.Number) {
			if c.Count == 0 {
				continue
			}
			if result[k.Channel] == nil {
				result[k.Channel] = map[string][]statusCount{}
			}
			result[k.Channel][k.ID] = append(result[k.Channel][k.ID], statusCount{int(c.Status), c.Count, c.Oldest, c.Newest})
		}
	}
	return result, nil
}

type deadCount struct {
	ChannelID    string `json:"channelId"`
	ChannelName  string `json:"channelName"`
	ConsumerID   string `json:"consumerId"`
	ConsumerName string `json:"consumerName"`
	DeadCount    int    `json:"deadCount"`
}

func (a operators) deadStatus(r *http.Request) (any, error) {
	consumers := []deadCount{}
	for _, k := range a.Directory.Consumers.List("") {
		if dead := a.b.Index.CountJobs(k.Number)[3].Count; dead > 0 {
			channel, _ := a.Directory.Channels.Find(r.Context(), "", k.Channel) // only its name is used
			consumers = append(consumers, deadCount{k.Channel, channel.Name, k.ID, k.Name, dead})
		}
	}
	return map[string][]deadCount{"consumers": consumers}, nil
}

type consumerState struct {
	ChannelID, ConsumerID, Type string
	stateModel
	// The counts of jobs by state.
	Queued, Inflight, Delivered, Dead int
}

// consumerStates returns the state of each consumer, and the channels without consumers.
func (a operators) consumerStates(*http.Request) (any, error) {
	list, used, unused := []consumerState{}, map[string]bool{}, []string{}
	for _, c := range a.Directory.Consumers.List("") {
		s := consumerState{ChannelID: c.Channel, ConsumerID: c.ID, Type: string(c.Type), stateModel: stateOf(a.b.Dispatch, c)}
		n := a.b.Index.CountJobs(c.Number)
		s.Queued, s.Inflight, s.Delivered, s.Dead = n[0].Count, n[1].Count, n[2].Count, n[3].Count
		list, used[c.Channel] = append(list, s), true
	}
	for _, c := range a.Directory.Channels.List("") {
		if !used[c.ID] {
			unused = append(unused, c.ID)
		}
	}
	return map[string]any{"Result": list, "Unused": unused}, nil
}

// initialized is the value of status that clients of _status wait for.
const initialized = 3

func (a operators) status(_ *http.Request) (any, error) {
	return map[string]any{"SeedData": a.opts.Seed, "AppStatus": initialized}, nil
}

var errNoBackup = refuse(http.StatusNotFound, "Request resource not found: this broker has no server of its own; back up the streams with the "+
	"nats command")

func (a operators) listBackup(_ *http.Request) (any, error) {
	if a.opts.Backup == nil {
		return nil, errNoBackup
	}
	return map[string][]string{"Streams": a.opts.Backup.Streams}, nil
}

// copyStream sends the copy of a stream. If it fails, the copy has no end mark.
func (a operators) copyStream(w http.ResponseWriter, r *http.Request) error {
	stream := r.PathValue("stream")
	if a.opts.Backup == nil || !slices.Contains(a.opts.Backup.Streams, stream) {
		return errNoBackup
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	if err := a.opts.Backup.Copy(r.Context(), stream, w); err != nil {
		a.log.Warn("backup broke off", "stream", stream, "error", err)
	}
	return nil
}
