package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/broker/internal/domain"
)

var producer = client.Producer{Channel: "ch", ChannelToken: "ct", ID: "pr", Token: "pt"}

func newBroker(t testing.TB, change func(*broker.Config)) *client.Client {
	t.Helper()
	return client.New(startBroker(t, change), nil)
}

// startBroker returns the URL of a broker.
func startBroker(t testing.TB, change func(*broker.Config)) string {
	t.Helper()
	cfg := broker.DefaultConfig()
	cfg.HTTP.Listener = "127.0.0.1:0"
	cfg.NATS.StoreDir = t.TempDir()
	cfg.Seed = broker.SeedData{
		Channels:  []broker.SeedItem{{ID: "ch", Name: "ch", Token: "ct"}},
		Producers: []broker.SeedItem{{ID: "pr", Name: "pr", Token: "pt"}},
		Consumers: []broker.SeedConsumer{{
			SeedItem: broker.SeedItem{ID: "k", Name: "k", Token: "kt"}, Channel: "ch", CallbackURL: "http://127.0.0.1:9/",
			Type: domain.Pull,
		}},
	}
	if change != nil {
		change(cfg)
	}
	n, err := broker.Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, n.Stop(ctx))
	})
	return n.URL()
}

func TestErrorsHaveKinds(t *testing.T) {
	c := newBroker(t, nil)
	ctx := t.Context()
	location, err := c.Broadcast(ctx, producer, client.Message{ID: "m", Payload: []byte{0xff}, Priority: 2, Headers: map[string]string{"X-A": "1"}})
	require.NoError(t, err)
	require.Equal(t, "/channel/ch/message/m", location)
	_, err = c.Broadcast(ctx, producer, client.Message{ID: "m", Payload: []byte("x")})
	require.ErrorIs(t, err, client.ErrDuplicate)
	wrong := producer
	wrong.Token = "x"
	_, err = c.Broadcast(ctx, wrong, client.Message{})
	require.ErrorIs(t, err, client.ErrDenied)
	require.ErrorIs(t, err, fs.ErrPermission)
	wrong.Channel = "none"
	_, err = c.Broadcast(ctx, wrong, client.Message{})
	require.ErrorIs(t, err, client.ErrNotFound)
	_, err = client.New("http://127.0.0.1:1", nil).Broadcast(ctx, producer, client.Message{})
	require.ErrorIs(t, err, client.ErrUnavailable)

	k := c.Consumer("ch", "ct", "k", "kt")
	listed, err := k.Queued(ctx, 5)
	require.NoError(t, err)
	require.Len(t, listed, 1)
	require.Equal(t, []byte{0xff}, listed[0].Payload)
	require.Equal(t, "1", listed[0].Headers["X-A"])
	claimed, err := k.Claim(ctx, 5, 30*time.Second, 0)
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	require.NoError(t, listed[0].Delivered(ctx), "a worker without a claim token is not held off")
	require.NoError(t, claimed[0].Delivered(ctx), "the claim ended as it was to end")
	require.ErrorIs(t, claimed[0].Dead(ctx), client.ErrClaimLost)
	_, err = claimed[0].Extend(ctx, 0)
	require.ErrorIs(t, err, client.ErrClaimLost)
}

// A message is never broadcast earlier than scheduled, also if its time has a fraction of a second.
func TestScheduledForAFractionOfASecond(t *testing.T) {
	base := startBroker(t, nil)
	at := time.Now().Add(time.Hour).Truncate(time.Second).Add(time.Millisecond)
	location, err := client.New(base, nil).Broadcast(t.Context(), producer, client.Message{ID: "m", Payload: []byte("x"), At: at})
	require.NoError(t, err)
	require.Equal(t, "/channel/ch/scheduled-message/m", location)
	resp, err := http.Get(base + location)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var m struct{ DispatchSchedule time.Time }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&m))
	require.Equal(t, at.Truncate(time.Second).Add(time.Second).UTC(), m.DispatchSchedule)
}

// A listed or claimed job has the ID of the replay that queued it.
func TestReplayedJobSaysSo(t *testing.T) {
	base := startBroker(t, nil)
	c := client.New(base, nil)
	_, err := c.Broadcast(t.Context(), producer, client.Message{ID: "m", Payload: []byte("x")})
	require.NoError(t, err)
	k := c.Consumer("ch", "ct", "k", "kt")
	jobs, err := k.Claim(t.Context(), 1, 0, 0)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Empty(t, jobs[0].Replay)
	require.NoError(t, jobs[0].Delivered(t.Context()))
	resp, err := http.Post(base+"/channel/ch/consumer/k/replay", "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode)
	replay := path.Base(resp.Header.Get("Location"))
	require.Eventually(t, func() bool {
		jobs, err = k.Queued(t.Context(), 1)
		return err == nil && len(jobs) == 1
	}, 20*time.Second, time.Millisecond)
	require.Equal(t, replay, jobs[0].Replay)
	jobs, err = k.Claim(t.Context(), 1, 0, 10*time.Second)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Equal(t, replay, jobs[0].Replay)
}

// Each job is worked off by exactly one of 32 workers.
func TestWorkersShareAQueue(t *testing.T) {
	c := newBroker(t, nil)
	const n = 300
	for i := range n {
		_, err := c.Broadcast(t.Context(), producer, client.Message{ID: fmt.Sprint(i), Payload: []byte("x")})
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			k := c.Consumer("ch", "ct", "k", "kt")
			err := k.Consume(ctx, func(_ context.Context, j *client.Job) error {
				mu.Lock()
				defer mu.Unlock()
				seen[j.MessageID]++
				if len(seen) == n {
					cancel()
				}
				return nil
			}, client.Options{OnError: func(err error) { assert.NoError(t, err) }})
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	require.Len(t, seen, n)
	for id, times := range seen {
		require.Equal(t, 1, times, "message %s", id)
	}
	left, err := c.Consumer("ch", "ct", "k", "kt").Queued(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A claim is extended while its handler runs. A job whose handler fails is queued again when its claim ends. A Fatal error makes
// it dead.
func TestConsumeKeepsRetriesAndKills(t *testing.T) {
	c := newBroker(t, func(cfg *broker.Config) {
		cfg.Connection.Timeout = 1500 * time.Millisecond
		cfg.Dispatch.RationalDelay = 0
	})
	for _, id := range []string{"slow", "flaky", "fatal", "panics"} {
		_, err := c.Broadcast(t.Context(), producer, client.Message{ID: id, Payload: []byte("x")})
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := map[string]*atomic.Int32{"slow": {}, "flaky": {}, "fatal": {}, "panics": {}}
	done := make(chan string, 10)
	go func() {
		for range 3 {
			<-done
		}
		cancel()
	}()
	err := c.Consumer("ch", "ct", "k", "kt").Consume(ctx, func(ctx context.Context, j *client.Job) error {
		call := calls[j.MessageID].Add(1)
		switch j.MessageID {
		case "slow":
			select {
			case <-time.After(4 * time.Second):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case "fatal":
			return client.Fatal(errors.New("never"))
		case "flaky":
			if call == 1 {
				return errors.New("not now")
			}
		case "panics":
			if call == 1 {
				panic("oops")
			}
		}
		done <- j.MessageID
		return nil
	}, client.Options{Concurrency: 4})
	require.NoError(t, err)
	require.EqualValues(t, 1, calls["slow"].Load())
	require.EqualValues(t, 2, calls["flaky"].Load())
	require.EqualValues(t, 2, calls["panics"].Load())
	require.EqualValues(t, 1, calls["fatal"].Load())
}

func TestConsumeEndsWhereItCannotWork(t *testing.T) {
	c := newBroker(t, nil)
	nothing := func(context.Context, *client.Job) error { return nil }
	require.ErrorIs(t, c.Consumer("ch", "ct", "k", "wrong").Consume(t.Context(), nothing, client.Options{}), client.ErrDenied)
	require.ErrorIs(t, c.Consumer("none", "ct", "k", "kt").Consume(t.Context(), nothing, client.Options{}), client.ErrNotFound)
	require.Error(t, c.Consumer("ch", "ct", "k", "kt").Consume(t.Context(), nil, client.Options{}))
}

// A request that can never be sent is not ErrUnavailable, or a caller would repeat it forever.
func TestHeaderThatCannotBeSent(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	defer srv.Close()
	for _, m := range []client.Message{
		{ID: "a\nb", Payload: []byte("x")},
		{Payload: []byte("x"), Headers: map[string]string{"X A": "1"}},
		{Payload: []byte("x"), Headers: map[string]string{"X-A": "1\n2"}},
	} {
		_, err := client.New(srv.URL, nil).Broadcast(t.Context(), client.Producer{Channel: "ch"}, m)
		require.Error(t, err)
		require.NotErrorIs(t, err, client.ErrUnavailable)
	}
}

// Message.Headers cannot replace the headers that name the producer and carry its tokens.
func TestHeadersAreNotTheBrokersOwn(t *testing.T) {
	requests := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		assert.Equal(t, "ct", r.Header.Get("X-Broker-Channel-Token"))
		w.WriteHeader(http.StatusCreated)
	}))
	defer srv.Close()
	c := client.New(srv.URL, nil)
	for _, name := range []string{
		"x-broker-channel-token", "X-Broker-Producer-ID", "X-Broker-Producer-Token", "X-Broker-Metadata-Headers", "X-Broker-Message-ID",
		"content-type", "X-Broker-Event-Type", "X-Broker-Message-Priority", "X-Broker-Scheduled-For",
	} {
		_, err := c.Broadcast(t.Context(), producer, client.Message{Payload: []byte("x"), Headers: map[string]string{name: "1"}})
		require.ErrorContains(t, err, fmt.Sprintf(`broadcast to channel "ch": the header %q is the broker's own`, name))
		require.NotErrorIs(t, err, client.ErrUnavailable)
	}
	require.Zero(t, requests)
	_, err := c.Broadcast(t.Context(), producer, client.Message{
		Payload: []byte("x"),
		Headers: map[string]string{"X-Broker-Admin-Token": "1", "Authorization": "2"},
	})
	require.NoError(t, err)
}

// A worker whose clock is ahead of the broker's works all the same, and also if it is set during the claim: the end of the claim has a reading of
// the monotonic clock.
func TestClockAhead(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} { // the broker's clock
		claims := 0
		extended := make(chan struct{}, 10)
		var state string
		now := func() time.Time { return time.Now().Add(skew).UTC() }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", now().Format(http.TimeFormat))
			switch {
			case strings.HasSuffix(r.URL.Path, "/claim"):
				if claims++; claims > 1 {
					<-r.Context().Done()
					return
				}
				_, _ = fmt.Fprintf(w, `{"Result":[{"ID":"j","ClaimToken":"t","ClaimExpiresAt":%q,"Message":{"MessageID":"m"}}]}`,
					now().Add(4*time.Second).Format(time.RFC3339Nano))
			case strings.HasSuffix(r.URL.Path, "/extend"):
				extended <- struct{}{}
				_, _ = fmt.Fprintf(w, `{"ClaimExpiresAt":%q}`, now().Add(4*time.Second).Format(time.RFC3339Nano))
			default:
				var req struct{ NextState string }
				_ = json.NewDecoder(r.Body).Decode(&req)
				state = req.NextState
				w.WriteHeader(http.StatusAccepted)
				cancel()
			}
		}))
		err := client.New(srv.URL, nil).Consumer("ch", "ct", "k", "kt").Consume(ctx, func(ctx context.Context, j *client.Job) error {
			monotonic := strings.Contains(j.ClaimExpires.String(), " m=")
			select {
			case <-extended:
				if !monotonic {
					return client.Fatal(fmt.Errorf("%v depends on the wall clock", j.ClaimExpires))
				}
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, client.Options{Drain: time.Second})
		require.NoError(t, err)
		srv.CloseClientConnections()
		srv.Close()
		require.Equal(t, "DELIVERED", state, "skew %s", skew)
		cancel()
	}
}

// A handler learns that its claim has ended even if the broker does not answer.
func TestClaimEndsWhileTheBrokerIsSilent(t *testing.T) {
	var claimed atomic.Bool
	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/claim") && !claimed.Swap(true) {
			_, err := fmt.Fprintf(w, `{"Result":[{"ID":"j1","ClaimToken":"t","ClaimExpiresAt":%q,"Message":{"MessageID":"m"}}]}`,
				time.Now().Add(200*time.Millisecond).Format(time.RFC3339Nano))
			assert.NoError(t, err)
			return
		}
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	defer silent.Close()
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var cause error
	_ = client.New(silent.URL, nil).Consumer("ch", "ct", "k", "kt").Consume(ctx, func(handling context.Context, _ *client.Job) error {
		<-handling.Done()
		cause = context.Cause(handling)
		cancel()
		return nil
	}, client.Options{Drain: time.Millisecond, OnError: func(error) {}})
	require.ErrorIs(t, cause, client.ErrClaimLost)
}
