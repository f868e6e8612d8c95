package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// buffer is a bytes.Buffer that two exporters can write to concurrently.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// TestRun reads the exported spans and checks that the trace of each order continues in the worker.
func TestRun(t *testing.T) {
	var out buffer
	require.NoError(t, run(t.Context(), "", &out))
	type span struct {
		Name                string
		SpanContext, Parent struct{ TraceID, SpanID string }
		ScopeMetrics        []struct {
			Metrics []struct{ Name string }
		}
	}
	spans := map[string]map[string]span{} // by name and trace
	metrics := map[string]bool{}
	for dec := json.NewDecoder(&out.b); ; {
		var s span
		err := dec.Decode(&s)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		for _, scope := range s.ScopeMetrics {
			for _, m := range scope.Metrics {
				metrics[m.Name] = true
			}
		}
		if s.Name != "" {
			if spans[s.Name] == nil {
				spans[s.Name] = map[string]span{}
			}
			spans[s.Name][s.SpanContext.TraceID] = s
		}
	}
	require.Len(t, spans["order"], orders)
	for trace, published := range spans["order"] {
		processed, packed := spans["process "+stream][trace], spans["pack"][trace]
		require.Equal(t, published.SpanContext.SpanID, processed.Parent.SpanID)
		require.Equal(t, processed.SpanContext.SpanID, packed.Parent.SpanID)
	}
	require.Contains(t, metrics, "messaging.process.duration")
	require.Contains(t, metrics, "messaging.client.consumed.messages")
}
