package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

const (
	// defaultReplayRate leaves room for what is broadcast meanwhile.
	defaultReplayRate = 100
	maxReplayRate     = 100_000
)

type replayRequest struct {
	Since, Until string
	Status       string
	Metadata     map[string]string
	DryRun       bool
	Rate         *float64
}

type replayModel struct {
	ID        string
	State     string
	Count     int
	Replayed  int
	Skipped   int
	Since     time.Time         `json:",omitzero"`
	Until     time.Time         `json:",omitzero"`
	Status    string            `json:",omitempty"`
	Metadata  map[string]string `json:",omitempty"`
	Rate      float64
	CreatedAt time.Time
	ChangedAt time.Time
}

// spec reads which jobs are meant.
func (q replayRequest) spec() (domain.ReplaySpec, error) {
	s := domain.ReplaySpec{Metadata: q.Metadata, Rate: defaultReplayRate}
	for _, field := range []struct {
		name, text string
		at         *time.Time
	}{{"Since", q.Since, &s.Since}, {"Until", q.Until, &s.Until}} {
		if field.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, field.text)
		if err != nil {
			return s, badField(field.name, fmt.Errorf("%q is no time of RFC 3339, such as 2026-01-02T15:04:05Z", field.text))
		}
		if *field.at = at.UTC(); field.at.Year() < 0 || field.at.Year() > 9999 {
			return s, badField(field.name, fmt.Errorf("%q is out of the years 0 to 9999 in UTC", field.text))
		}
	}
	if !s.Until.IsZero() && !s.Until.After(s.Since) {
		return s, badField("Until", fmt.Errorf("%s is not after Since, %s", q.Until, q.Since))
	}
	if q.Status != "" {
		status, ok := domain.ParseJobStatus(q.Status)
		if !ok || status != domain.Dead && status != domain.Delivered {
			return s, badField("Status", fmt.Errorf("%q is neither DEAD nor DELIVERED; without one it is both", q.Status))
		}
		s.Status = status
	}
	if q.Rate != nil {
		if s.Rate = *q.Rate; !(s.Rate >= 1 && s.Rate <= maxReplayRate) {
			return s, badField("Rate", fmt.Errorf("%g: give a number of jobs per second, from 1 to %d", s.Rate, maxReplayRate))
		}
	}
	return s, nil
}

func replayURL(k domain.Consumer, id string) string {
	return link("channel", k.Channel, "consumer", k.ID, "replay", id)
}

// startReplay queues dead or delivered jobs again, or counts them.
func (a *API) startReplay(w http.ResponseWriter, r *http.Request, k domain.Consumer) error {
	var req replayRequest
	if err := httpserve.ReadJSON(r, &req); err != nil {
		return err
	}
	spec, err := req.spec()
	if err != nil {
		return err
	}
	if req.DryRun {
		count, err := a.b.Replays.CountReplay(r.Context(), k, spec)
		if err != nil {
			return err
		}
		writeJSON(w, map[string]int{"Count": count})
		return nil
	}
	started, err := a.b.Replays.StartReplay(r.Context(), k, spec, a.who(r))
	if running, ok := errors.AsType[*bulk.RunningError](err); ok {
		url := replayURL(k, running.ID)
		w.Header().Set("Location", url)
		return refuse(http.StatusConflict, "the replay "+url+" is running: wait for its end, which GET of that path shows, or cancel it with DELETE")
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", replayURL(k, started.ID))
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (a *API) getReplay(r *http.Request, k domain.Consumer) (any, error) {
	replay, err := a.b.Replays.ReplayOf(r.Context(), k, r.PathValue("replay"))
	if err != nil {
		return nil, err
	}
	var spec domain.ReplaySpec
	if err = json.Unmarshal(replay.Spec, &spec); err != nil {
		return nil, err
	}
	model := replayModel{
		ID: replay.ID, State: string(replay.State), Count: replay.Matched, Replayed: replay.Done, Skipped: replay.Skipped,
		Since: spec.Since, Until: spec.Until, Metadata: spec.Metadata, Rate: replay.Rate, CreatedAt: replay.CreatedAt, ChangedAt: replay.ChangedAt,
	}
	if spec.Status != 0 {
		model.Status = spec.Status.String()
	}
	return model, nil
}

func (a *API) cancelReplay(w http.ResponseWriter, r *http.Request, k domain.Consumer) error {
	return done(w, http.StatusNoContent, a.b.Replays.CancelReplay(r.Context(), k, r.PathValue("replay")))
}
