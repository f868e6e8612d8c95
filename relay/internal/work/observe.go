package work

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jetpull/jetpull/internal/service/metrics"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// Metrics are the Prometheus metrics of one process.
type Metrics struct {
	*metrics.Set
	ingest    *prometheus.CounterVec
	attempts  *prometheus.HistogramVec
	polls     *prometheus.CounterVec
	callbacks *prometheus.CounterVec
	responses *prometheus.HistogramVec
	endToEnd  *prometheus.HistogramVec

	mu      sync.Mutex
	answers map[string]*answerTimes // by receiver
}

var buckets = prometheus.ExponentialBuckets(0.0005, 2, 20) // 0.5 ms to 262 s

// newMetrics returns metrics with a registry of their own.
func newMetrics(w *Workers) *Metrics {
	set := metrics.New("relay", buckets)
	set.Registry.MustRegister(metrics.Gauges(w.collect), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "relay_events_lost_total", Help: "Events that could not be sent to the operator's URL.",
	}, func() float64 { return float64(w.cfg.Events.Lost()) }))
	return &Metrics{
		answers: map[string]*answerTimes{},
		Set:     set,
		ingest:  set.Counter("relay_messages_total", "Messages from senders, by outcome.", "outcome"),
		attempts: set.Histogram("relay_attempt_seconds", "Time that POSTs to a receiver took, by class of status, or why there is none.", "receiver",
			"result"),
		polls:     set.Counter("relay_polls_total", "Requests to status endpoints that got a response, by class of status.", "receiver", "status"),
		callbacks: set.Counter("relay_callbacks_total", "Callbacks to senders, by class of status, or why there is none.", "sender", "result"),
		responses: set.Histogram("relay_response_seconds", "Time from the arrival of a message to its receiver's response.", "receiver"),
		endToEnd:  set.Histogram("relay_end_to_end_seconds", "Time from the arrival of a message to the 2xx of its sender's callback.", "receiver"),
	}
}

// resultClass is [result] as the value of a label.
func resultClass(a *webhook.Answer, err error) string {
	if a != nil {
		return metrics.Class(a.Code)
	}
	return result(a, err)
}

func result(a *webhook.Answer, err error) string {
	switch {
	case errors.Is(err, webhook.ErrForbiddenAddress):
		return "forbidden_address"
	case errors.Is(err, webhook.ErrNotSent):
		return "not_sent"
	case a == nil:
		return "no_answer"
	}
	return strconv.Itoa(a.Code)
}

func (m *Metrics) attempted(receiver string, a *webhook.Answer, err error, took time.Duration) {
	m.attempts.WithLabelValues(receiver, resultClass(a, err)).Observe(took.Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.answers[receiver]
	if t == nil {
		t = &answerTimes{}
		m.answers[receiver] = t
	}
	if t.refused++; a != nil && a.Code < 300 {
		t.refused = 0
	} else if t.refused == 1 {
		t.since = time.Now()
	}
	if a != nil {
		t.last[t.count%maxAnswerTimes] = took
		t.count++
	}
}

// maxAnswerTimes is the number of latest answers from which the times of a receiver are computed.
const maxAnswerTimes = 256

// answerTimes is a ring of the response times of a receiver's latest answers.
type answerTimes struct {
	last  [maxAnswerTimes]time.Duration
	count int
	// refused counts the POSTs that failed since the last success. since is the time of the first of them.
	refused int
	since   time.Time
}

// Seen has this process's statistics of a receiver. It is empty if this process has made no POST to the receiver, although others may have.
type Seen struct {
	// Answers is nil before the first answer.
	Answers *Answers `json:"answers,omitempty"`
	// Refused counts the POSTs that failed since the last success. RefusedSince is the time of the first of them.
	Refused      *int      `json:"refused,omitempty"`
	RefusedSince time.Time `json:"refused_since,omitzero"`
}

// Answers has percentiles of the response times of a receiver's latest Count answers, in seconds. Total counts all since the start of the process.
type Answers struct {
	Total int     `json:"total"`
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
}

// Seen returns this process's statistics of a receiver.
func (m *Metrics) Seen(receiver string) (seen Seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.answers[receiver]
	if t == nil {
		return seen
	}
	if seen.Refused = new(t.refused); t.refused > 0 {
		seen.RefusedSince = t.since
	}
	if t.count > 0 {
		took := slices.Sorted(slices.Values(t.last[:min(t.count, maxAnswerTimes)]))
		rank := func(percent int) float64 { return took[(len(took)*percent+99)/100-1].Seconds() }
		seen.Answers = &Answers{t.count, len(took), rank(50), rank(99)}
	}
	return seen
}

// calledBack counts a callback. A receiver that was deleted gets no series.
func (m *Metrics) calledBack(sender string, receiver store.Receiver, a *webhook.Answer, err error, took time.Duration) {
	m.callbacks.WithLabelValues(sender, resultClass(a, err)).Inc()
	if !receiver.Gone() && err == nil && a.Code >= 200 && a.Code <= 299 {
		m.endToEnd.WithLabelValues(receiver.Name).Observe(max(0, took).Seconds())
	}
}

func (m *Metrics) forget(label, name string) {
	labels := prometheus.Labels{label: name}
	for _, vec := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.attempts, m.polls, m.callbacks, m.responses, m.endToEnd} {
		vec.DeletePartialMatch(labels)
	}
	if label == "receiver" {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.answers, name)
	}
}

// The gauges are collected at each scrape.
var (
	gaugeBacklog  = metrics.Desc("relay_backlog", "Messages that wait for their receiver.", "receiver")
	gaugeAge      = metrics.Desc("relay_oldest_seconds", "Age of the oldest message that waits for its receiver.", "receiver")
	gaugePending  = metrics.Desc("relay_pending_responses", "Messages whose response is pending at the status endpoint.", "receiver")
	gaugeToSender = metrics.Desc("relay_callback_backlog", "Messages whose callback to the sender has not succeeded yet.", "sender")
	gaugeWindow   = metrics.Desc("relay_window_used", "POSTs in the receiver's rate window, where this process sends.", "receiver")
	gaugeLimit    = metrics.Desc("relay_window_limit", "POSTs that the receiver's rate window allows.", "receiver")
	gaugeBreaker  = metrics.Desc("relay_breaker_open", "1 while the receiver's breaker is open or half open, where this process sends.", "receiver")
	gaugeOff      = metrics.Desc("relay_receiver_disabled", "1 while a receiver that responded with 410 waits to be configured again.", "receiver")
	gaugeFailed   = metrics.Desc("relay_failed_messages", "Failed messages on the list.", "receiver")
	gaugeOldest   = metrics.Desc("relay_failed_oldest_seconds", "Age of the oldest failed message on the list.")
)

// scrapeTimeout bounds the requests of a scrape to the server.
const scrapeTimeout = 2 * time.Second

func (w *Workers) collect(gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	w.collectQueues(ctx, gauge)
	for _, r := range w.store.Receivers.All() {
		state := w.gate(r.Name).state(r)
		gauge(gaugeBreaker, metrics.OneIf(state.Breaker != "closed"), r.Name)
		gauge(gaugeOff, metrics.OneIf(r.Disabled), r.Name)
		if r.RateLimit > 0 {
			gauge(gaugeWindow, float64(state.WindowUsed), r.Name)
			gauge(gaugeLimit, float64(r.RateLimit), r.Name)
		}
	}
	depth, oldest := w.store.FailedDepth()
	for receiver, n := range depth {
		gauge(gaugeFailed, float64(n), receiver)
	}
	gauge(gaugeOldest, max(0, w.store.Now().Sub(oldest).Seconds()))
}

// waiting are the gauges of the messages that wait in a queue.
var waiting = map[store.Queue]*prometheus.Desc{store.ToReceiver: gaugeBacklog, store.FromReceiver: gaugePending, store.ToSender: gaugeToSender}

// collectQueues collects the lengths of the queues. It omits a queue if the server does not answer in time.
func (w *Workers) collectQueues(ctx context.Context, gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	for q, desc := range waiting {
		backlogs, err := w.store.Backlogs(ctx, q)
		if err != nil {
			w.log.Info("a scrape has not all of what waits", "error", err)
			continue
		}
		for _, owner := range w.store.Owners(q) {
			n := backlogs[owner.Name]
			answers := q == store.FromReceiver && w.store.Receivers.Get(owner.Name).StatusEndpoint == "" // no response can be pending
			if n == 0 && (owner.Deleted || answers) {
				continue
			}
			gauge(desc, float64(n), owner.Name)
			if q != store.ToReceiver {
				continue
			}
			if oldest, err := w.store.Oldest(ctx, q, owner.Name, n); err == nil {
				gauge(gaugeAge, oldest.Seconds(), owner.Name)
			}
		}
	}
}

// The events that are sent to the operator's URL.
const (
	eventDisabled = "receiver disabled"
	eventOpened   = "circuit breaker opened"
	eventClosed   = "circuit breaker closed"
	eventFailed   = "messages failed"
)

// failedEvery is how often failed messages are reported.
const failedEvery = 10 * time.Second

// event is the body of the request to the operator's URL.
type event struct {
	Event    string
	Receiver string
	Reason   string `json:",omitempty"`
	Count    int    `json:",omitempty"` // of messages that failed
	At       time.Time
}

// notify reports an event to the operator. It does not wait.
func (w *core) notify(e event) {
	e.At = wall()
	w.log.Warn("event", "event", e.Event, "receiver", e.Receiver, "reason", e.Reason, "count", e.Count)
	w.cfg.Events.Send(e)
}

// countFailed counts a failed message for the next event.
func (w *core) countFailed(receiver string, reason machine.Reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures[event{Event: eventFailed, Receiver: receiver, Reason: string(reason)}]++
}

// reportCounts reports the failed messages that were counted, in one event for each receiver and reason, and the records that were lost.
func (w *core) reportCounts() {
	if n := w.lost.Swap(0); n > 0 {
		w.cfg.Reporter.Report(w.ctx, errors.New("the store has lost the records of messages: they go on from the copies in the queues"), "messages", n)
	}
	w.mu.Lock()
	count := w.failures
	w.failures = map[event]int{}
	w.mu.Unlock()
	for e, n := range count {
		e.Count = n
		w.notify(e)
	}
}
