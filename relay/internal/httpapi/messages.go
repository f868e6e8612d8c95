package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

const maxWait = 5 * time.Minute

type messageBody struct {
	Source   string            `json:"source_id"`
	ID       string            `json:"message_id"`
	Receiver string            `json:"receiver"`
	Payload  json.RawMessage   `json:"payload"`
	Headers  map[string]string `json:"headers"`
}

// accepted is the answer to a message that was stored.
type accepted struct {
	Source string         `json:"source_id"`
	ID     string         `json:"message_id"`
	Status machine.Status `json:"status"`
}

func parseMessage(data []byte) (messageBody, error) {
	var m messageBody
	if err := httpserve.DecodeJSON(data, &m); err != nil {
		return m, err
	}
	for _, id := range [][2]string{{"source_id", m.Source}, {"message_id", m.ID}, {"receiver", m.Receiver}} {
		if err := work.CheckID(id[0], id[1]); err != nil {
			return m, httpserve.BadRequest("%v", err)
		}
	}
	if len(m.Payload) == 0 {
		return m, httpserve.BadRequest("payload is missing")
	}
	if err := work.CheckHeaders(m.Headers); err != nil {
		return m, httpserve.BadRequest("%v", err)
	}
	return m, nil
}

// offer converts a message for the workers, if its sender may send it.
func (a *API) offer(r *http.Request, m messageBody) (work.Offer, error) {
	o := work.Offer{Source: m.Source, ID: m.ID, Receiver: m.Receiver, Headers: m.Headers, Payload: m.Payload, Trace: r.Header.Get("Traceparent")}
	var err error
	if o.Sender, err = a.senderOf(r, m.Source); err != nil {
		return o, err
	}
	if _, err = a.store.Receivers.Find(r.Context(), m.Receiver); errors.Is(err, store.ErrNotFound) {
		err = httpserve.NotFound("no receiver is called %q", m.Receiver)
	}
	return o, err
}

func answer(o work.Offer, v work.Verdict) (int, accepted, error) {
	body := accepted{o.Source, o.ID, v.Status}
	switch {
	case v.Err != nil:
		return 0, body, v.Err
	case v.Outcome == work.Conflict:
		return 0, body, httpserve.Refuse(http.StatusConflict, "conflict", "message %q of source %q is there with another payload or receiver", o.ID,
			o.Source)
	case v.Outcome == work.Duplicate:
		return http.StatusOK, body, nil
	}
	return http.StatusAccepted, body, nil
}

func (a *API) postMessage(w http.ResponseWriter, r *http.Request) error {
	wait, err := parseWait(r)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(a.opts.MaxBody)))
	if err != nil {
		return httpserve.ReadError(err)
	}
	m, err := parseMessage(data)
	if err != nil {
		return err
	}
	o, err := a.offer(r, m)
	if err != nil {
		return err
	}
	status, body, err := answer(o, a.work.Submit(r.Context(), []work.Offer{o})[0])
	if err != nil {
		return err
	}
	if wait > 0 {
		return a.await(w, r, body, wait)
	}
	httpserve.WriteJSON(w, status, body)
	return nil
}

// parseWait parses ?wait=. It returns 0 if there is none.
func parseWait(r *http.Request) (time.Duration, error) {
	d, err := httpserve.QueryDuration(r, "wait")
	if err == nil && d > maxWait {
		err = httpserve.BadQuery(r, "wait", "a time up to "+maxWait.String()+", such as 30s")
	}
	return d, err
}

// await answers with the response of a message, or with 202 when the wait ends first. known is the answer to the stored message.
func (a *API) await(w http.ResponseWriter, r *http.Request, known accepted, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	defer context.AfterFunc(a.opts.Stopping, cancel)()
	record, err := a.store.Await(ctx, known.Source, known.ID)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrUnavailable) {
		// The wait failed, for instance because a partition or the store is being taken over.
		httpserve.WriteJSON(w, http.StatusAccepted, known)
		return nil
	}
	if err != nil {
		return err
	}
	return writeResult(w, &record.Record)
}

func writeResult(w http.ResponseWriter, r *machine.Record) error {
	if r.Status.Ended() || r.Status == machine.Responded {
		httpserve.WriteJSON(w, http.StatusOK, work.Body(r))
		return nil
	}
	httpserve.WriteJSON(w, http.StatusAccepted, accepted{r.Source, r.ID, r.Status})
	return nil
}

type messageView struct {
	Source   string         `json:"source_id"`
	ID       string         `json:"message_id"`
	Receiver string         `json:"receiver"`
	Status   machine.Status `json:"status"`
	Attempt  int            `json:"attempt"`
	Attempts []attemptView  `json:"attempts"`
	Arrived  time.Time      `json:"arrived"`
	Ended    *time.Time     `json:"ended,omitempty"`
	Redrives int            `json:"redrives"`
	// Sender gets the callback, and Reported says that it has confirmed a failure, or has no callback. They are for operators.
	Sender   string `json:"sender,omitempty"`
	Reported bool   `json:"reported,omitempty"`
	// Waiting is the reason why a message that has arrived is not sent now.
	Waiting   *gate.Wait          `json:"waiting,omitempty"`
	Response  json.RawMessage     `json:"response"`
	Truncated bool                `json:"truncated,omitempty"`
	Error     *work.CallbackError `json:"error,omitempty"`
}

type attemptView struct {
	Number   int       `json:"number"`
	Time     time.Time `json:"time"`
	Code     int       `json:"code,omitempty"`
	Error    string    `json:"error,omitempty"`
	Duration float64   `json:"duration"`
	// Answer is for operators.
	Answer *machine.Answer `json:"answer,omitempty"`
}

// viewMessage returns the view of a message for an operator, or for its sender. A sender's view has no addresses.
func viewMessage(r *machine.Record, operator bool) messageView {
	shown := mask.Addresses
	body := work.Body(r)
	if operator {
		shown = func(text string) string { return text }
		if body.Error != nil {
			body.Error.Message = r.Failure.Error
		}
	}
	v := messageView{
		Source: r.Source, ID: r.ID, Receiver: r.Receiver, Status: r.Status, Attempt: r.Attempt, Attempts: []attemptView{}, Arrived: r.ArrivedAt,
		Redrives: r.Generation, Response: body.Response, Truncated: body.Truncated, Error: body.Error,
	}
	if operator {
		v.Sender, v.Reported = r.Sender, r.Reported
	}
	if !r.EndedAt.IsZero() {
		v.Ended = &r.EndedAt
	}
	for _, at := range r.Attempts {
		v.Attempts = append(v.Attempts, attemptView{at.Number, at.Time, at.Code, shown(at.Error), at.Duration.Seconds(), nil})
		if operator {
			v.Attempts[len(v.Attempts)-1].Answer = at.Answer
		}
	}
	return v
}

// findMessage reads the message in the path, if the request may see it.
func (a *API) findMessage(r *http.Request) (store.Versioned, error) {
	source := r.PathValue("source")
	if _, err := a.senderOf(r, source); err != nil {
		return store.Versioned{}, err
	}
	return a.store.Read(r.Context(), source, r.PathValue("id"))
}

func (a *API) getMessage(r *http.Request, record store.Versioned) (any, error) {
	view := viewMessage(&record.Record, a.isAdmin(r))
	waiting, err := a.work.MessageWait(r.Context(), &record.Record)
	view.Waiting = waiting
	return view, err
}

func (a *API) getResponse(w http.ResponseWriter, r *http.Request) error {
	wait, err := parseWait(r)
	if err != nil {
		return err
	}
	record, err := a.findMessage(r)
	if err != nil {
		return err
	}
	if wait > 0 && !record.Status.Ended() && record.Status != machine.Responded {
		return a.await(w, r, accepted{record.Source, record.ID, record.Status}, wait)
	}
	return writeResult(w, &record.Record)
}
