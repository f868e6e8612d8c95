// Package exporter serves the states of the consumers of a NATS account to programs: /metrics for Prometheus, and /v1/scale for an autoscaler.
//
// Each request asks the leader of a consumer for its state. An unknown number is an error or is left out. It is never reported as 0.
package exporter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/wire"
)

// Config configures an exporter.
type Config struct {
	JS jetstream.JetStream
	// Valid reports whether a token gives access. Nil means that no token is needed.
	Valid func(token string) bool
	// Logins counts wrong tokens. It is required with Valid.
	Logins *httpserve.Logins
	// Loopback reports whether only this machine can reach the listener.
	Loopback bool
	Log      *slog.Logger
}

// scrapers is the access of routes that need a valid token.
const scrapers = httpserve.Open + 1

var errNoConnection = errors.New("there is no connection to a NATS server now")

var errUnauthorized = httpserve.Refuse(http.StatusUnauthorized, "unauthorized", "give a valid token as Authorization: Bearer")

// Handler serves /metrics, /v1/scale/STREAM/CONSUMER, /healthz and /readyz.
func Handler(c Config) http.Handler {
	ready := func(http.ResponseWriter, *http.Request) error {
		if !c.JS.Conn().IsConnected() {
			return unavailable(errNoConnection)
		}
		return nil
	}
	return httpserve.NewFrame(httpserve.System{
		Log: c.Log, Unguarded: c.Valid == nil, Loopback: c.Loopback && c.Valid == nil, Private: "set a token",
		Check: func(_ http.ResponseWriter, r *http.Request, route httpserve.Route) error {
			token := httpserve.Bearer(r)
			if route.Access == httpserve.Open || c.Valid == nil || c.Valid(token) {
				return nil
			}
			return c.Logins.Refuse(r, token, errUnauthorized)
		},
		Describe: func(err error) *httpserve.Error { return httpserve.Describe(err, nil) },
		// An autoscaler repeats its requests all the time, and gets the reason in the answer.
		Quiet: func(_ *http.Request, status int) bool { return status == http.StatusServiceUnavailable },
	}, append(httpserve.Common(scrapers, http.HandlerFunc(c.metrics), nil, ready),
		httpserve.On(http.MethodGet, "/v1/scale/{stream}/{consumer}", scrapers, httpserve.Show(c.scale), "per", "max")))
}

// askTimeout limits a request to NATS. It is below KEDA's default timeout of 3 s.
const askTimeout = 2 * time.Second

func unavailable(err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) { // nats.go reports that a buffer of 0 bytes is full
		err = errNoConnection
	}
	return httpserve.Refuse(http.StatusServiceUnavailable, "unavailable", "%v", err)
}

func (c Config) info(ctx context.Context, stream, consumer string) (*jetstream.ConsumerInfo, error) {
	if n := max(len(stream), len(consumer)); n > wire.MaxName { // the server would close the connection
		return nil, httpserve.BadRequest("a name has %d bytes, which are more than %d", n, wire.MaxName)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	found, err := c.JS.Consumer(ctx, stream, consumer)
	switch {
	case err == nil:
		return found.CachedInfo(), nil
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, httpserve.NotFound("there is no stream %q", stream)
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return nil, httpserve.NotFound("stream %q has no consumer %q", stream, consumer)
	case errors.Is(err, jetstream.ErrInvalidStreamName), errors.Is(err, jetstream.ErrInvalidConsumerName), errors.Is(err, jetstream.ErrNotPullConsumer):
		return nil, httpserve.BadRequest("stream %q, consumer %q: %v", stream, consumer, err)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("its leader has not answered within %v", askTimeout)
	}
	return nil, unavailable(fmt.Errorf("consumer %q of stream %q: %w", consumer, stream, err))
}

// scale is the number of processes that a consumer needs. Load is Pending plus AckPending: a message that a process holds is still work, and without
// a process nobody would finish it.
type scale struct {
	Processes  uint64 `json:"processes"`
	Load       uint64 `json:"load"`
	Pending    uint64 `json:"pending"`
	AckPending uint64 `json:"ack_pending"`
}

func (c Config) scale(r *http.Request) (any, error) {
	per, err := number(r, "per", "the number of messages that one process handles within the time that you want, 1 or more")
	if err != nil {
		return nil, err
	}
	most := uint64(math.MaxUint64)
	if r.URL.Query().Has("max") {
		if most, err = number(r, "max", "the largest number of processes, 1 or more"); err != nil {
			return nil, err
		}
	}
	info, err := c.info(r.Context(), r.PathValue("stream"), r.PathValue("consumer"))
	if err != nil {
		return nil, err
	}
	s := scale{Pending: info.NumPending, AckPending: uint64(info.NumAckPending)}
	s.Load = s.Pending + s.AckPending
	if s.Processes = s.Load / per; s.Load%per > 0 {
		s.Processes++
	}
	s.Processes = min(s.Processes, most)
	return s, nil
}

func number(r *http.Request, name, give string) (uint64, error) {
	n, err := strconv.ParseUint(r.URL.Query().Get(name), 10, 32)
	if err != nil || n == 0 {
		return 0, httpserve.BadQuery(r, name, give)
	}
	return n, nil
}
