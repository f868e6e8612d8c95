package partition

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/partition"
)

// TestMain runs a member where the process was started as one.
func TestMain(m *testing.M) {
	if text := os.Getenv("PARTITION_MEMBER"); text != "" {
		var s memberSettings
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if err := runMember(s); err != nil {
			fmt.Fprintln(os.Stderr, s.Name, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// memberSettings are those of a member in a process of its own.
type memberSettings struct {
	Name, URL string
	Config    partition.Config
	Work      time.Duration // of a handler at most
	Fail      int           // one of so many attempts fails; 0: none
}

// event is a line that a member writes when a handler begins and ends.
type event struct {
	Kind   string    `json:"k"` // begin, ok, failed, assign, revoke
	Key    string    `json:"key,omitempty"`
	Number int       `json:"n"`
	Time   time.Time `json:"t"`
	Why    string    `json:"why,omitempty"`

	member string
}

func runMember(s memberSettings) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	nc, err := nats.Connect(s.URL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	set, err := partition.Open(ctx, js, "ORDERS", s.Config)
	for err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, s.Name, "open:", err)
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
		set, err = partition.Open(ctx, js, "ORDERS", s.Config)
	}
	if err != nil {
		return nil
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	write := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(e)
	}
	return set.Consume(ctx, func(ctx context.Context, m *jetpull.Msg) error {
		n, err := strconv.Atoi(string(m.Data()))
		if err != nil {
			return jetpull.Terminate("no number", err)
		}
		write(event{Kind: "begin", Key: m.Subject(), Number: n, Time: time.Now()})
		h := fnv.New32a()
		_, _ = fmt.Fprint(h, m.Sequence(), time.Now().UnixNano())
		draw := h.Sum32()
		select {
		case <-time.After(time.Duration(draw) % (s.Work + 1)):
		case <-ctx.Done():
			write(event{Kind: "failed", Key: m.Subject(), Number: n, Time: time.Now(), Why: context.Cause(ctx).Error()})
			return context.Cause(ctx)
		}
		if s.Fail > 0 && int(draw>>8)%s.Fail == 0 {
			write(event{Kind: "failed", Key: m.Subject(), Number: n, Time: time.Now()})
			return jetpull.Retry(5*time.Millisecond, fmt.Errorf("planned"))
		}
		write(event{Kind: "ok", Key: m.Subject(), Number: n, Time: time.Now()})
		return nil
	}, partition.Member(s.Name), partition.With(jetpull.Concurrency(4), jetpull.OnError(func(error) {})),
		partition.OnAssign(func(n int, why string) { write(event{Kind: "assign", Number: n, Time: time.Now(), Why: why}) }),
		partition.OnRevoke(func(n int, why string) { write(event{Kind: "revoke", Number: n, Time: time.Now(), Why: why}) }))
}
