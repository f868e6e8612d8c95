package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

const (
	// defaultReplayRate leaves capacity for new broadcasts.
	defaultReplayRate = 100
	maxReplayRate     = 100_000
	// defaultPurgeRate is higher, because the purpose of a purge is to get rid of a backlog.
	defaultPurgeRate = 10_000
)

type replayRequest struct {
	Since, Until string
	Status       string
	Metadata     map[string]string
	Message      string
	DryRun       bool
	Rate         *float64
}

// operationModel has the fields that all operations share.
type operationModel struct {
	ID, Kind, State        string
	Count, Skipped, Failed int
	By                     string `json:",omitempty"`
	Rate                   float64
	CreatedAt, ChangedAt   time.Time
}

func modelOfOperation(o bulk.Operation) operationModel {
	return operationModel{o.ID, o.Kind, string(o.State), o.Matched, o.Skipped, o.Failed, o.By, o.Rate, o.CreatedAt, o.ChangedAt}
}

// replayModel is a replay, or a purge of queued jobs.
type replayModel struct {
	operationModel
	Replayed int
	Purged   int
	Since    time.Time         `json:",omitzero"`
	Until    time.Time         `json:",omitzero"`
	Status   string            `json:",omitempty"`
	Metadata map[string]string `json:",omitempty"`
	Message  string            `json:",omitempty"`
}

// spec parses the selection of jobs in a request.
func (q replayRequest) spec() (domain.ReplaySpec, error) {
	s := domain.ReplaySpec{Metadata: q.Metadata, Message: q.Message, Rate: defaultReplayRate}
	for _, field := range []struct {
		name, text string
		at         *time.Time
	}{{"Since", q.Since, &s.Since}, {"Until", q.Until, &s.Until}} {
		if field.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, field.text)
		if err != nil {
			return s, badField(field.name, fmt.Errorf("%q is not a time in RFC 3339, such as 2026-01-02T15:04:05Z", field.text))
		}
		if *field.at = at.UTC(); field.at.Year() < 0 || field.at.Year() > 9999 {
			return s, badField(field.name, fmt.Errorf("%q is out of the years 0 to 9999 in UTC", field.text))
		}
	}
	if !s.Until.IsZero() && !s.Until.After(s.Since) {
		return s, badField("Until", fmt.Errorf("%s is not after Since, %s", q.Until, q.Since))
	}
	s.Status, _ = domain.ParseJobStatus(q.Status)
	if q.Status != "" && s.Status != domain.Dead && s.Status != domain.Delivered {
		return s, badField("Status", fmt.Errorf("%q is neither DEAD nor DELIVERED; without one it is both", q.Status))
	}
	if q.Rate != nil {
		s.Rate = *q.Rate
	}
	return s, checkRate(s.Rate)
}

func checkRate(rate float64) error {
	if !(rate >= 1 && rate <= maxReplayRate) {
		return badField("Rate", fmt.Errorf("%g: give a number of jobs per second, from 1 to %d", rate, maxReplayRate))
	}
	return nil
}

// startPurge starts to remove the jobs of a consumer that are queued now, or counts them.
func (a operators) startPurge(w http.ResponseWriter, r *http.Request, k domain.Consumer) error {
	req := struct {
		DryRun bool
		Rate   float64
	}{Rate: defaultPurgeRate}
	if err := httpserve.ReadJSON(r, &req); err != nil {
		return err
	}
	if err := checkRate(req.Rate); err != nil {
		return err
	}
	purge, err := a.b.Replays.NewPurge(r.Context(), k, req.Rate, a.who(r))
	if err != nil {
		return err
	}
	return a.begin(w, r, purge, req.DryRun, "replay or purge", replaysURL(r, k))
}

// replaysURL returns the prefix of the paths of a consumer's replays.
func replaysURL(r *http.Request, k domain.Consumer) string {
	return link(r, "channel", k.Channel, "consumer", k.ID) + "/replay/"
}

// startReplay starts to queue dead or delivered jobs again, or counts them.
func (a *API) startReplay(w http.ResponseWriter, r *http.Request, k domain.Consumer) error {
	var req replayRequest
	if err := httpserve.ReadJSON(r, &req); err != nil {
		return err
	}
	spec, err := req.spec()
	if err != nil {
		return err
	}
	if req.Message != "" { // its time shortens the search for its job
		if !spec.Since.IsZero() || !spec.Until.IsZero() {
			return badField("Message", errors.New("give it without Since and Until"))
		}
		m, err := a.b.Messages.Message(r.Context(), k.Channel, req.Message)
		if err != nil {
			return err
		}
		spec.Since, spec.Until = m.ReceivedAt, m.ReceivedAt.Add(1)
	}
	replay, err := work.NewOperation(domain.ReplayKind, work.ReplayGroup(k), spec, spec.Rate, a.who(r))
	if err != nil {
		return err
	}
	return a.begin(w, r, replay, req.DryRun, "replay or purge", replaysURL(r, k))
}

// begin starts an operation and responds with its path, which is at + ID. With dryRun, it counts the items. what names the kind in errors.
func (a *API) begin(w http.ResponseWriter, r *http.Request, o bulk.Operation, dryRun bool, what, at string) error {
	if dryRun {
		count, err := a.b.Replays.Operations.Count(r.Context(), o)
		if err == nil {
			httpserve.WriteJSON(w, http.StatusOK, map[string]int{"Count": count})
		}
		return err
	}
	o, err := a.b.Replays.Operations.Begin(r.Context(), o)
	if running, ok := errors.AsType[*bulk.RunningError](err); ok {
		w.Header().Set("Location", at+running.ID)
		return refuse(http.StatusConflict, "the "+what+" "+at+running.ID+" is running: wait for its end, which GET of that path shows, or cancel it "+
			"with DELETE")
	}
	if err == nil {
		w.Header().Set("Location", at+o.ID)
	}
	return httpserve.Done(w, http.StatusAccepted, err)
}

func (a *API) replay(r *http.Request) (bulk.Operation, error) {
	k, err := a.consumer(r)
	if err != nil {
		return bulk.Operation{}, err
	}
	return a.b.Replays.Operation(r.Context(), r.PathValue("replay"), func(o bulk.Operation) bool {
		return domain.OfConsumer(o.Kind) && o.Group == work.ReplayGroup(k)
	})
}

func showReplay(_ *http.Request, o bulk.Operation) (any, error) { return modelOfReplay(o), nil }

func modelOfReplay(replay bulk.Operation) replayModel {
	var spec domain.ReplaySpec
	_ = json.Unmarshal(replay.Spec, &spec) // a replay that cannot be parsed is shown without its selection, and a purge has none
	model := replayModel{
		operationModel: modelOfOperation(replay), Since: spec.Since, Until: spec.Until, Metadata: spec.Metadata, Message: spec.Message,
	}
	if spec.Status != 0 {
		model.Status = spec.Status.String()
	}
	if replay.Kind == domain.PurgeQueuedKind {
		model.Purged = replay.Done
	} else {
		model.Replayed = replay.Done
	}
	return model
}

// replayOf is an item in the list of all consumers' replays.
type replayOf struct {
	replayModel
	ChannelID, ConsumerID, URL string
}

// maxReplays is the maximum length of the list of replays.
const maxReplays = 1000

func (a operators) listReplays(r *http.Request) (any, error) {
	list := []replayOf{}
	for _, o := range a.operations(true) {
		number, err := strconv.ParseUint(o.Group, 10, 32)
		k, known := a.b.Index.Consumer(uint32(number))
		if err != nil || !known {
			continue // its consumer was deleted
		}
		list = append(list, replayOf{modelOfReplay(o), k.Channel, k.ID, replaysURL(r, k) + o.ID})
	}
	return map[string]any{"Result": list[:min(len(list), maxReplays)]}, nil
}

// operations returns the operations on one consumer's jobs, or all others, newest first.
func (a operators) operations(ofConsumer bool) []bulk.Operation {
	all := slices.DeleteFunc(a.b.Parts.Replays.All(), func(o bulk.Operation) bool { return domain.OfConsumer(o.Kind) != ofConsumer })
	slices.SortFunc(all, func(x, y bulk.Operation) int {
		return cmp.Or(y.CreatedAt.Compare(x.CreatedAt), cmp.Compare(x.ID, y.ID))
	})
	return all
}

// cancel cancels an operation, which may be on dead jobs.
func (a *API) cancel(w http.ResponseWriter, r *http.Request, o bulk.Operation) error {
	_, err := a.b.Replays.Operations.Cancel(r.Context(), o.ID)
	return httpserve.Done(w, http.StatusNoContent, err)
}
