package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/tokens"
)

type deadJob struct {
	jobModel
	MessageURL    string
	JobRequeueURL string
}

type deadList struct {
	DeadJobs []deadJob
	Pages    map[string]string
}

func (a operators) listDead(r *http.Request, k domain.Consumer) (any, error) {
	k.CallbackURL = a.shownURL(r, k.CallbackURL)
	page, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	jobs := a.Jobs.ListDead(k.Number, page)
	seqs := make([]uint64, len(jobs))
	for i, j := range jobs {
		seqs[i] = j.ID.Seq
	}
	messages, err := a.Messages.MessagesAt(r.Context(), seqs)
	if err != nil {
		return nil, err
	}
	list := deadList{DeadJobs: make([]deadJob, 0, len(jobs))}
	for _, j := range jobs {
		if m, ok := messages[j.ID.Seq]; ok {
			list.DeadJobs = append(list.DeadJobs, deadJob{modelOfJob(j, k), link("channel", k.Channel, "message", m.ID), requeueURL(k, j)})
		}
	}
	list.Pages = pageLinks(r, jobs, func(j domain.Job) domain.Position {
		return domain.Position{At: j.ChangedAt.UnixNano(), Seq: j.ID.Seq}
	})
	return list, nil
}

func (a operators) requeueDead(w http.ResponseWriter, r *http.Request) error {
	if err := checkForm(r); err != nil {
		return err
	}
	k, err := a.consumer(r)
	if err != nil && (!errors.Is(err, domain.ErrNotFound) || a.opts.AdminToken == "" || a.isAdmin(r)) {
		return err
	}
	if err := readForm(r); err != nil {
		return err
	}
	if err != nil || !tokens.Same(k.Token, r.PostFormValue("requeue")) {
		return refuse(http.StatusBadRequest, "`requeue` form param must match consumer token")
	}
	if _, err := a.b.Jobs.RequeueDead(r.Context(), k); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (a operators) purgeDead(r *http.Request) (any, error) {
	k, err := a.checkConsumer(r, errNotFound)
	if err != nil {
		return nil, err
	}
	n, err := a.b.Jobs.PurgeDead(r.Context(), k)
	if err != nil {
		return nil, err
	}
	return map[string]int{"deletedCount": n}, nil
}

type statusCount struct {
	Status              int    `json:"status"`
	Count               int    `json:"count"`
	OldestItemTimestamp string `json:"oldestItemTimestamp"`
	NewestItemTimestamp string `json:"newestItemTimestamp"`
}

func (a operators) jobStatus(_ *http.Request) (any, error) {
	result := map[string]map[string][]statusCount{}
	for _, k := range a.Directory.Consumers.List("") {
		for _, c := range a.Jobs.CountJobs(k.Number) {
			if c.Count == 0 {
				continue
			}
			if result[k.Channel] == nil {
				result[k.Channel] = map[string][]statusCount{}
			}
			result[k.Channel][k.ID] = append(result[k.Channel][k.ID], statusCount{
				int(c.Status), c.Count, c.Oldest.Format(time.RFC3339Nano), c.Newest.Format(time.RFC3339Nano),
			})
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
		for _, c := range a.Jobs.CountJobs(k.Number) {
			if c.Status == domain.Dead && c.Count > 0 {
				channel, _ := a.Directory.Channels.Find(r.Context(), "", k.Channel) // only its name is of use
				consumers = append(consumers, deadCount{k.Channel, channel.Name, k.ID, k.Name, c.Count})
			}
		}
	}
	return map[string][]deadCount{"consumers": consumers}, nil
}

type consumerState struct {
	ChannelID, ConsumerID, Type, State string
	PausedAt                           time.Time `json:",omitzero"`
	PausedBy                           string    `json:",omitempty"`
	Breaker                            string    `json:",omitempty"`
	FailingSince                       time.Time `json:",omitzero"`
}

// consumerStates returns the state of all consumers.
func (a operators) consumerStates(*http.Request) (any, error) {
	list := []consumerState{}
	for _, c := range a.Directory.Consumers.List("") {
		s := consumerState{
			ChannelID: c.Channel, ConsumerID: c.ID, Type: string(c.Type), State: stateOf(c), PausedAt: c.Pause.At, PausedBy: c.Pause.Reason,
			Breaker: string(a.b.Dispatch.Breaker(c)), FailingSince: c.FailingSince,
		}
		list = append(list, s)
	}
	return map[string]any{"Result": list}, nil
}

// initialized is the number that clients wait for in _status.
const initialized = 3

func (a operators) status(_ *http.Request) (any, error) {
	return map[string]any{"SeedData": a.opts.Seed, "AppStatus": initialized}, nil
}

var errNoBackup = refuse(http.StatusNotFound, "Request resource not found: this broker has no server of its own; back up the streams with the nats command")

// listBackup names the streams to copy, in their order.
func (a operators) listBackup(_ *http.Request) (any, error) {
	if a.opts.Backup == nil {
		return nil, errNoBackup
	}
	return map[string][]string{"Streams": a.opts.Backup.Streams}, nil
}

// copyStream sends the copy of a stream. One that breaks off has no end mark.
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
