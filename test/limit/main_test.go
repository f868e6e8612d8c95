package limit

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/limit"
)

// TestMain runs a process of a fleet where it was started as one.
func TestMain(m *testing.M) {
	if text := os.Getenv("LIMIT_PROCESS"); text != "" {
		var s settings
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if err := s.run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// settings are those of a process.
type settings struct {
	URL     string
	Config  limit.Config
	Keys    int
	Workers int           // for each key
	Work    time.Duration // of a handler at most
}

// event is a line that a process writes when a handler begins and ends.
type event struct {
	ID    int   `json:"id"`
	Key   int   `json:"key"`
	Begin int64 `json:"begin,omitempty"` // ns, by the clock of the machine
	End   int64 `json:"end,omitempty"`
}

// run handles all it can, until it is killed.
func (s *settings) run() error {
	ctx := context.Background()
	nc, err := nats.Connect(s.URL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	kv, err := js.KeyValue(ctx, "limits")
	if err != nil {
		return err
	}
	l, err := limit.Open(ctx, kv, "calls", s.Config)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out, id := json.NewEncoder(os.Stdout), 0
	var workers sync.WaitGroup
	for n := range s.Keys * s.Workers {
		workers.Go(func() {
			key := n % s.Keys
			for {
				release, err := l.Acquire(ctx, fmt.Sprint("key ", key))
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				begin := time.Now().UnixNano()
				handler, cancel := l.Context(ctx, fmt.Sprint("key ", key))
				mu.Lock()
				id++
				mine := id
				_ = out.Encode(event{ID: mine, Key: key, Begin: begin})
				mu.Unlock()
				select {
				case <-time.After(rand.N(s.Work)):
				case <-handler.Done():
				}
				cancel()
				end := time.Now().UnixNano()
				release()
				mu.Lock()
				_ = out.Encode(event{ID: mine, Key: key, End: end})
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return nil
}
