package jetpull_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

// A message that is kept holds its own memory, and none of the messages that came with it.
func TestARetainedMessageHoldsNoOthers(t *testing.T) {
	for name, msg := range map[string]struct {
		header nats.Header
		body   string
	}{
		"payload": {nil, fmt.Sprintf("%02000d", 1)},
		"headers": {nats.Header{"Large": {fmt.Sprintf("%02000d", 1)}}, ""},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{MaxAckPending: -1}, func(t *testing.T, w *world) {
			const messages, every = 6400, 64
			for range messages {
				w.PublishTo("s.a", msg.header, msg.body)
			}
			var kept []*jetpull.Msg
			for got := 0; got < messages; {
				ms, err := w.sub.Fetch(t.Context(), 640)
				require.NoError(t, err)
				for _, m := range ms {
					require.NoError(t, m.Ack())
					if got++; got%every == 0 {
						kept = append(kept, m)
					}
				}
			}
			require.NoError(t, w.sub.Close(t.Context()))
			n, with := len(kept), heap()
			runtime.KeepAlive(kept)
			require.Less(t, with-heap(), n*10_000, "bytes for %d messages that were kept", n)
		}))
	}
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
