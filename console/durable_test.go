package console

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/operation"
)

// oneFailure is a relay with a receiver of which a message failed.
type oneFailure struct{}

func (oneFailure) Call(_ context.Context, _, path string, _, answer any) error {
	path, _, _ = strings.Cut(path, "?")
	return json.Unmarshal([]byte(map[string]string{
		"/v1/receivers": `{"items":[{"name":"ci","state":{"failed":1,"refused":0}}]}`, "/v1/failed": `{"total":1,"items":[{"id":"7"}]}`,
	}[path]), answer)
}

// keeper is what an earlier process has kept.
type keeper map[string]string

func (k keeper) Read(_ context.Context, keys string) (map[string]*jetstream.RawStreamMsg, error) {
	found := map[string]*jetstream.RawStreamMsg{}
	for key, value := range k {
		if strings.HasPrefix(key, strings.TrimSuffix(keys, ">")) {
			found[key] = &jetstream.RawStreamMsg{Data: []byte(value)}
		}
	}
	return found, nil
}

func (k keeper) Put(_ context.Context, key string, data []byte) (uint64, error) {
	k[key] = string(data)
	return 1, nil
}

func (keeper) Update(context.Context, string, []byte, uint64) (uint64, error) { return 1, nil }

// Without NATS at the start, operations and alerts begin after a minute. The console reads what earlier processes have kept when NATS is there.
func TestKeptIsReadWhenNATSIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Handler(Config{Relay: oneFailure{}, Log: slog.New(slog.DiscardHandler)})
		defer c.Close()
		var away atomic.Bool
		away.Store(true)
		keep := keeper{
			"log.1": `{"Action":"Pause","Who":"grace"}`,
			"seen." + base64.RawURLEncoding.EncodeToString([]byte("failed messages of receiver ci")): `{"object":"failed messages of receiver ci","by":"ada","at":"2026-01-01T00:00:00Z","sequence":7}`,
		}
		open := func(context.Context) (operation.Keep, error) {
			if away.Load() {
				return nil, errors.New("there is no connection to a NATS server now")
			}
			return keep, nil
		}
		var ready atomic.Int64
		c.sampler.Go(func(ctx context.Context) {
			c.outlive(ctx, operation.NewRunner(c.log), open, func() { ready.Add(1) })
		})
		after := func(d time.Duration) (all string) {
			time.Sleep(d)
			synctest.Wait()
			return read(c, "/receiver?name=ci") + read(c, "/log")
		}
		require.NotContains(t, after(restoreTime/2), "ada")
		require.Zero(t, ready.Load())
		require.NotContains(t, after(10*restoreTime), "ada")
		require.EqualValues(t, 1, ready.Load())
		away.Store(false)
		text := after(time.Minute)
		require.Contains(t, text, "ada has looked at all failures up to number 7")
		require.Contains(t, text, "grace")
		require.Contains(t, text, "Somebody has looked at all of 1 failed message")
		require.EqualValues(t, 1, ready.Load())
		c.Close()
		require.Contains(t, keep, "values.relay", "charts are kept from then on")
	})
}
