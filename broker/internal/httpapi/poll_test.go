package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// A request that waits for jobs uses no goroutine but its own.
func TestPollStartsNoGoroutine(t *testing.T) {
	stopping, stop := context.WithCancel(t.Context())
	a := &API{opts: Options{Stopping: stopping}}
	before := runtime.NumGoroutine()
	polls := make([]context.Context, 100)
	for i := range polls {
		ctx, cancel := a.pollContext(httptest.NewRequest(http.MethodGet, "/", nil))
		t.Cleanup(cancel)
		polls[i] = ctx
	}
	require.Less(t, runtime.NumGoroutine(), before+len(polls)/2)
	stop()
	for _, ctx := range polls {
		<-ctx.Done()
	}
}
