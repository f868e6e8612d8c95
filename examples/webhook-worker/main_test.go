package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/client"
)

// statuses counts the warehouse's jobs by state.
func statuses(t *testing.T, url string) map[string]int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/job-status", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	var all map[string]map[string][]struct{ Status, Count int }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&all))
	counts := map[string]int{}
	for _, s := range all["orders"]["warehouse"] {
		counts[map[int]string{1001: "QUEUED", 1002: "INFLIGHT", 1003: "DELIVERED", 1004: "DEAD"}[s.Status]] = s.Count
	}
	return counts
}

// All orders are done, except the blank one, which is a dead letter.
func TestAllOrdersAreWorkedOff(t *testing.T) {
	own, stop, err := startBroker(t.Context())
	require.NoError(t, err)
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if c := statuses(t, own.url); c["DELIVERED"]+c["DEAD"] == orders {
				return
			}
		}
	}()
	var out bytes.Buffer
	require.NoError(t, work(ctx, own, &out, handle))
	require.Equal(t, fmt.Sprintf("worked off %d orders\n", orders-1), out.String())
	require.Equal(t, map[string]int{"DELIVERED": orders - 1, "DEAD": 1}, statuses(t, own.url))
}

// SIGTERM arrives while handlers run. They finish and report, and hardly any others start.
func TestSIGTERM(t *testing.T) {
	ctx, stopSignals := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stopSignals()
	own, stop, err := startBroker(t.Context())
	require.NoError(t, err)
	defer stop()
	const stopAfter = 20
	var started, finished atomic.Int64
	var once sync.Once
	var out bytes.Buffer
	require.NoError(t, work(ctx, own, &out, func(work context.Context, _ *client.Job) error {
		if started.Add(1) >= stopAfter {
			once.Do(func() {
				if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
					t.Errorf("SIGTERM: %v", err)
				}
			})
			// A handler that is running when the signal arrives is not cancelled.
			<-ctx.Done()
			select {
			case <-time.After(100 * time.Millisecond):
			case <-work.Done():
				t.Error("cancelled before Drain")
			}
		}
		finished.Add(1)
		return nil
	}))
	require.Equal(t, started.Load(), finished.Load(), "all that were started have finished")
	require.Less(t, started.Load(), int64(stopAfter+8), "hardly anything was started after the signal")
	require.Equal(t, fmt.Sprintf("worked off %d orders\n", finished.Load()), out.String())
	require.EqualValues(t, finished.Load(), statuses(t, own.url)["DELIVERED"])
}

func TestWrongTokenEndsTheWorker(t *testing.T) {
	own, stop, err := startBroker(t.Context())
	require.NoError(t, err)
	defer stop()
	own.consumerToken = "guessed"
	require.ErrorIs(t, start(t.Context(), own, &bytes.Buffer{}), client.ErrDenied)
}
