package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

const maxWait = 5 * time.Minute

func parseMessage(data []byte) (o work.Offer, err error) {
	if err := httpserve.DecodeJSON(data, &o); err != nil {
		return o, err
	}
	err = cmp.Or(work.CheckID("source_id", o.Source), work.CheckID("message_id", o.ID), work.CheckID("receiver", o.Receiver),
		work.CheckHeaders(o.Headers))
	if err == nil && len(o.Payload) == 0 {
		err = errors.New("payload is missing")
	}
	if err != nil {
		return o, httpserve.BadRequest("%v", err)
	}
	return o, nil
}

// offer parses a message for the workers. It returns an error if the request may not send it.
func (a *API) offer(r *http.Request, data []byte) (work.Offer, error) {
	o, err := parseMessage(data)
	if err != nil {
		return o, err
	}
	o.Trace = r.Header.Get("Traceparent")
	if o.Sender, err = a.senderOf(r, o.Source); err != nil {
		return o, err
	}
	receiver, err := a.store.Receivers.Find(r.Context(), o.Receiver)
	if err == nil && receiver.Gone() {
		err = httpserve.NotFound("no receiver is called %q", o.Receiver)
	}
	return o, err
}

// answer returns the answer to a message that was submitted.
func answer(o work.Offer, in *work.Intake) (int, work.Result, error) {
	body := work.Result{Source: o.Source, ID: o.ID, Status: string(in.Status)}
	switch {
	case in.Err != nil:
		return 0, body, in.Err
	case in.Outcome == work.Conflict:
		return 0, body, httpserve.Refuse(http.StatusConflict, "conflict", "message %q of source %q is there with another payload or receiver", o.ID,
			o.Source)
	case in.Outcome == work.Duplicate:
		return http.StatusOK, body, nil
	}
	return http.StatusAccepted, body, nil
}

func (a *API) postMessage(w http.ResponseWriter, r *http.Request) error {
	wait, err := httpserve.QueryDuration(r, "wait", maxWait)
	if err != nil {
		return err
	}
	r.Body = http.MaxBytesReader(w, r.Body, int64(a.opts.HTTP.MaxBodyBytes))
	data, err := httpserve.ReadBody(r)
	if err != nil {
		return err
	}
	o, err := a.offer(r, data)
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

// await answers with the response of a message, or with 202 when the wait ends first. known is the answer if the record cannot be read for a while.
func (a *API) await(w http.ResponseWriter, r *http.Request, known work.Result, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	defer context.AfterFunc(a.opts.Stopping, cancel)()
	record, err := a.store.Await(ctx, known.Source, known.ID)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrUnavailable) {
		// The wait failed, for example because a partition or the store is being taken over.
		httpserve.WriteJSON(w, http.StatusAccepted, known)
		return nil
	}
	if err != nil {
		return err
	}
	return writeResult(w, &record.Record)
}

// present returns the answer for a message that has no response yet.
func present(r *machine.Record) work.Result {
	return work.Result{Source: r.Source, ID: r.ID, Status: string(r.Status)}
}

func writeResult(w http.ResponseWriter, r *machine.Record) error {
	if r.Status.Ended() || r.Status == machine.Responded {
		httpserve.WriteJSON(w, http.StatusOK, work.Body(r))
		return nil
	}
	httpserve.WriteJSON(w, http.StatusAccepted, present(r))
	return nil
}

type messageView struct {
	work.Result
	Receiver string        `json:"receiver"`
	Attempt  int           `json:"attempt"`
	Attempts []attemptView `json:"attempts"`
	Arrived  time.Time     `json:"arrived"`
	Ended    time.Time     `json:"ended,omitzero"`
	Redrives int           `json:"redrives"`
	// Sender gets the callback. Reported reports that it has confirmed a failure, has no callback, or missed the deadline. Only operators see both.
	Sender   string `json:"sender,omitempty"`
	Reported bool   `json:"reported,omitempty"`
	// Waiting is the reason why a message that has arrived is not sent now.
	Waiting *gate.Wait `json:"waiting,omitempty"`
}

type attemptView struct {
	machine.Attempt
	Duration float64         `json:"duration"`         // in seconds
	Answer   *machine.Answer `json:"answer,omitempty"` // for operators only
}

// viewMessage returns the view of a message for an operator, or for its sender. A sender's view has no addresses.
func viewMessage(r *machine.Record, operator bool) messageView {
	v := messageView{
		Result: work.Body(r), Receiver: r.Receiver, Attempt: r.Attempt, Attempts: []attemptView{}, Arrived: r.ArrivedAt, Ended: r.EndedAt,
		Redrives: r.Generation,
	}
	if operator {
		v.Sender, v.Reported = r.Sender, r.Reported
		if v.Error != nil {
			v.Error.Message, v.Reported = r.Failure.Error, r.Reported && r.Failure.Reason != machine.CallbackFailed
		}
	}
	for _, at := range r.Attempts {
		one := attemptView{at, at.Duration.Seconds(), at.Answer}
		if !operator {
			one.Error, one.Answer = mask.Addresses(at.Error), nil
		}
		v.Attempts = append(v.Attempts, one)
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
	wait, err := httpserve.QueryDuration(r, "wait", maxWait)
	if err != nil {
		return err
	}
	record, err := a.findMessage(r)
	if err != nil {
		return err
	}
	if wait > 0 && !record.Status.Ended() && record.Status != machine.Responded {
		return a.await(w, r, present(&record.Record), wait)
	}
	return writeResult(w, &record.Record)
}

type listedView struct {
	Source   string         `json:"source_id"`
	ID       string         `json:"message_id"`
	Receiver string         `json:"receiver"`
	Status   machine.Status `json:"status"`
	Attempts int            `json:"attempts"` // since it arrived or was last redriven
	Arrived  time.Time      `json:"arrived"`
	Changed  time.Time      `json:"changed"`
}

var statuses = []machine.Status{machine.Arrived, machine.Sending, machine.Delivered, machine.Responded, machine.Done, machine.Failed}

// listMessages lists the messages whose records are stored, whatever their status.
func (a *API) listMessages(r *http.Request) (any, error) {
	status := machine.Status(r.URL.Query().Get("status"))
	if status != "" && !slices.Contains(statuses, status) {
		return nil, httpserve.BadRequest("status: %q is none of %v", status, statuses)
	}
	f, limit, before, err := a.query(r)
	if err != nil {
		return nil, err
	}
	found, next, err := a.store.List(r.Context(), before, limit, func(l store.Listed) bool {
		item := store.Item{Receiver: l.Receiver, Source: l.Source, ID: l.ID, Time: l.Changed}
		return (status == "" || status == l.Status) && f.Match(&item)
	})
	answer := listOf(found, func(l store.Listed) listedView {
		return listedView{l.Source, l.ID, l.Receiver, l.Status, l.Attempt, l.ArrivedAt, l.Changed}
	})
	if next > 0 {
		answer["cursor"] = strconv.FormatUint(next, 10)
	}
	return answer, err
}

// requestView has the headers and the payload that a sender has sent.
type requestView struct {
	Headers map[string]string `json:"headers"`
	Payload []byte            `json:"payload"` // base64
}

// getRequest shows the request of a message that waits or is on the list of failed messages. Later the relay does not keep it.
func (a *API) getRequest(r *http.Request, record store.Versioned) (any, error) {
	e, err := a.store.Request(r.Context(), &store.Entry{Versioned: record})
	return requestView{e.Headers, e.Payload}, err
}
