package client

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A request that the broker accepts and never answers times out, and the broker is asked again.
func TestASilentBrokerIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			dials++
			mine, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			return mine, nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		var after []time.Duration
		err := New("http://broker", &http.Client{Transport: transport}).Consumer("ch", "ct", "k", "kt").Consume(ctx,
			func(context.Context, *Job) error { return nil },
			Options{Timeout: 7 * time.Second, OnError: func(err error) {
				assert.ErrorIs(t, err, ErrUnavailable)
				assert.ErrorContains(t, err, "claim: broker unavailable: no answer within 1m7s")
				if after = append(after, time.Since(begin)); len(after) == 2 {
					cancel()
				}
			}})
		require.NoError(t, err)
		require.Equal(t, []time.Duration{67 * time.Second, 2*67*time.Second + minPause}, after)
		require.Equal(t, 2, dials)
	})
}
