package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/registry"
	"github.com/jetpull/jetpull/internal/stored"
)

// bucket is one that all processes of a test share, without a delay.
type bucket struct {
	mu         sync.Mutex
	kept       uint64
	revision   uint64
	operations map[registry.ID]Operation
	away       error // of writes
}

func (b *bucket) place(id string) registry.ID { return (&Table{kept: b.kept}).place(id) }

func (b *bucket) Put(_ context.Context, o Operation) (Operation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away != nil {
		return o, b.away
	}
	there := b.operations[b.place(o.ID)]
	if o.Revision == 0 && there.State != Running && there.Number < o.Number {
		o.Revision = there.Revision
	}
	if o.Revision != there.Revision {
		return o, fmt.Errorf("%w: operation %s", stored.ErrConflict, o.ID)
	}
	b.revision++
	o.Revision = b.revision
	b.operations[b.place(o.ID)] = o
	return o, nil
}

func (b *bucket) Fresh(_ context.Context, id string) (Operation, error) {
	o, ok := b.Cached(id)
	if !ok {
		return o, stored.ErrNotFound
	}
	return o, nil
}

func (b *bucket) Cached(id string) (Operation, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.operations[b.place(id)]
	return o, ok && o.ID == id
}

func (b *bucket) In(group string) []Operation {
	return slices.DeleteFunc(b.All(), func(o Operation) bool { return o.Group != group })
}

func (b *bucket) All() []Operation {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.operations))
}

// things are items 1 to len, of which an operation makes each 1, at the time that it is done.
type things struct {
	mu      sync.Mutex
	done    []int
	at      []time.Time
	failing map[int]error
	skip    map[int]bool
	hang    chan struct{} // closed: items do not hang
	begun   int
}

func newThings(n int) *things { return &things{done: make([]int, n)} }

func (s *things) kind(page int) Kind {
	return Kind{
		Known: func(context.Context) (uint64, error) { return uint64(len(s.done)), nil },
		Select: func(_ context.Context, o Operation, from uint64, limit int) (items []Item, next uint64, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for seq := from; seq <= o.UpTo; seq++ {
				if s.done[seq-1] > 0 {
					continue
				}
				if len(items) == limit {
					return items, seq, nil
				}
				items = append(items, func(ctx context.Context) (bool, error) { return s.do(ctx, int(seq)) })
			}
			return items, 0, nil
		},
		Page: page,
	}
}

func (s *things) do(ctx context.Context, item int) (bool, error) {
	s.mu.Lock()
	s.begun++
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case s.failing[item] != nil:
		return false, s.failing[item]
	case s.skip[item], s.done[item-1] > 0:
		return false, nil
	}
	s.done[item-1]++
	s.at = append(s.at, time.Now())
	return true, nil
}

func (s *things) count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

func (b *bucket) runner(process string, s *things, set func(*Config)) *Runner {
	cfg := Config{
		Records: b, Kinds: map[string]Kind{"make": s.kind(10)}, Process: process, Shared: true, Lost: 10 * time.Second,
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	if set != nil {
		set(&cfg)
	}
	return New(cfg)
}

func newBucket() *bucket { return &bucket{kept: 3, operations: map[registry.ID]Operation{}} }

// runs runs a runner until the returned function is called.
func (r *Runner) running(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	synctest.Wait()
	return func() { cancel(); <-ended }
}

func ofGroup(group string) Operation {
	return Operation{Kind: "make", Group: group, By: "somebody", Spec: json.RawMessage(`{}`)}
}

// An operation does each item once, counts what it has skipped, and says who began it. A dry run does nothing.
func TestOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newThings(25)
		s.skip = map[int]bool{7: true}
		b := newBucket()
		r := b.runner("a", s, nil)
		defer r.running(t)()
		n, err := r.Count(t.Context(), ofGroup("g"))
		require.NoError(t, err)
		require.Equal(t, 25, n)
		require.Zero(t, s.count())
		require.Empty(t, b.All())
		o, err := r.Begin(t.Context(), ofGroup("g"))
		require.NoError(t, err)
		require.Equal(t, "g-1", o.ID)
		require.Equal(t, 25, o.Matched)
		synctest.Wait()
		o, err = r.Get(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, Done, o.State)
		require.Equal(t, []int{24, 1}, []int{o.Done, o.Skipped})
		require.Equal(t, "somebody", o.By)
		o, err = r.Cancel(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, Done, o.State, "what has ended stays as it is")
		_, err = r.Get(t.Context(), "g-2")
		require.ErrorIs(t, err, stored.ErrNotFound)
	})
}

// The rate holds from the first item on, also when items were held up.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []float64{0.5, 4, 40} {
			s := newThings(20)
			r := newBucket().runner("a", s, nil)
			stop := r.running(t)
			begun := time.Now()
			o := ofGroup("g")
			o.Rate = rate
			_, err := r.Begin(t.Context(), o)
			require.NoError(t, err)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Len(t, s.at, 20)
			for i, at := range s.at {
				require.InDelta(t, float64(i)/rate, at.Sub(begun).Seconds(), 0.001, "item %d at %g a second", i, rate)
			}
			stop()
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := pace{every: 10 * time.Millisecond}
		require.NoError(t, p.wait(t.Context()))
		time.Sleep(time.Hour)
		begun := time.Now()
		for range 20 {
			require.NoError(t, p.wait(t.Context()))
		}
		require.Equal(t, 20*p.every-catchUp-p.every, time.Since(begun), "an hour is not made good")
	})
}

// A cancel ends an operation in any process, and what was in work then is counted.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newThings(100), newBucket()
		r, other := b.runner("a", s, nil), b.runner("b", s, nil)
		defer r.running(t)()
		defer other.running(t)()
		o := ofGroup("g")
		o.Rate = 2
		o, err := r.Begin(t.Context(), o)
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		o, err = other.Cancel(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, Cancelled, o.State)
		time.Sleep(time.Minute)
		o, err = r.Get(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, Cancelled, o.State)
		require.Equal(t, s.count(), o.Done)
		require.Less(t, o.Done, 25)
		require.GreaterOrEqual(t, o.Done, 20)
	})
}

// A stop waits for items in work, and another process continues at once. No item is done twice.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newThings(100), newBucket()
		s.hang = make(chan struct{})
		r, other := b.runner("a", s, nil), b.runner("b", s, nil)
		stop := r.running(t)
		defer other.running(t)()
		o := ofGroup("g")
		o.Rate = 5
		o, err := r.Begin(t.Context(), o)
		require.NoError(t, err)
		time.Sleep(time.Second)
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Fatal("it does not wait for items in work")
		default:
		}
		close(s.hang)
		<-stopped
		require.NotZero(t, s.count())
		time.Sleep(2 * time.Second)
		now, err := b.Fresh(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, "b", now.Owner)
		time.Sleep(time.Minute)
		now, err = b.Fresh(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, Done, now.State)
		require.Equal(t, 100, now.Done)
		require.Equal(t, slices.Repeat([]int{1}, 100), s.done)
	})
}

// A stop saves that a page has ended whose items were all in work, also where only the position states which these were.
func TestStopAtTheEndOfAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, hang := newBucket(), make(chan struct{})
		r := b.runner("a", newThings(2), func(cfg *Config) {
			cfg.Kinds["make"] = Kind{
				Known: func(context.Context) (uint64, error) { return 2, nil }, Page: 1,
				Select: func(_ context.Context, _ Operation, from uint64, _ int) ([]Item, uint64, error) {
					return []Item{func(context.Context) (bool, error) { <-hang; return true, nil }}, (from + 1) % 3, nil
				},
			}
		})
		stop := r.running(t)
		o, err := r.Begin(t.Context(), ofGroup("g"))
		require.NoError(t, err)
		synctest.Wait()
		go func() { synctest.Wait(); close(hang) }()
		stop()
		now, err := b.Fresh(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, []uint64{2, 1}, []uint64{now.Next, uint64(now.Done)})
	})
}

// An operation of a process that died is taken over when it was not saved for some time, by that process's successor or by another one.
// With a server of its own there is no other process, and it continues at once.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, shared := range []bool{true, false} {
			s, b := newThings(30), newBucket()
			dead := ofGroup("g")
			dead.ID, dead.Number, dead.State, dead.Owner, dead.UpTo, dead.Next, dead.Matched, dead.Done = "g-1", 1, Running, "dead", 30, 11, 30, 10
			_, err := b.Put(t.Context(), dead)
			require.NoError(t, err)
			for i := range 10 {
				s.done[i]++
			}
			r := b.runner("a", s, func(c *Config) { c.Shared = shared })
			stop := r.running(t)
			if shared {
				time.Sleep(9 * time.Second)
				synctest.Wait()
				require.Zero(t, s.count(), "it may run elsewhere")
				time.Sleep(2 * time.Second)
			}
			synctest.Wait()
			o, err := r.Get(t.Context(), "g-1")
			require.NoError(t, err)
			require.Equal(t, Done, o.State)
			require.Equal(t, 30, o.Done)
			stop()
		}
	})
}

// An operation that is saved stays with its process, however long its items take.
func TestSlowItemsAreNotTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newThings(2), newBucket()
		s.hang = make(chan struct{})
		r, other := b.runner("a", s, nil), b.runner("b", s, nil)
		defer r.running(t)()
		defer other.running(t)()
		o, err := r.Begin(t.Context(), ofGroup("g"))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		o, err = r.Get(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, "a", o.Owner)
		synctest.Wait()
		require.Equal(t, 2, s.begun)
		close(s.hang)
		time.Sleep(time.Second)
		o, err = r.Get(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, Done, o.State)
	})
}

// A process that was stalled while its operation was taken over stops, and changes nothing of it.
func TestStalledProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newThings(50), newBucket()
		r := b.runner("a", s, nil)
		defer r.running(t)()
		o := ofGroup("g")
		o.Rate = 1
		o, err := r.Begin(t.Context(), o)
		require.NoError(t, err)
		time.Sleep(3500 * time.Millisecond)
		o, err = b.Fresh(t.Context(), o.ID)
		require.NoError(t, err)
		o.Owner = "b"
		_, err = b.Put(t.Context(), o)
		require.NoError(t, err)
		done := s.count()
		time.Sleep(5 * time.Second)
		require.Equal(t, done, s.count())
		now, err := b.Fresh(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, "b", now.Owner)
	})
}

// An item that fails, and a bucket that is away, are tried again. Nothing is left out, and nothing is skipped twice.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newThings(20), newBucket()
		s.skip, s.failing = map[int]bool{3: true}, map[int]error{5: stored.ErrUnavailable}
		r := b.runner("a", s, nil)
		defer r.running(t)()
		o, err := r.Begin(t.Context(), ofGroup("g"))
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		b.mu.Lock()
		b.away = stored.ErrUnavailable
		b.mu.Unlock()
		s.mu.Lock()
		s.failing = nil
		s.mu.Unlock()
		time.Sleep(time.Minute)
		b.mu.Lock()
		b.away = nil
		b.mu.Unlock()
		time.Sleep(10 * time.Second)
		o, err = r.Get(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, Done, o.State)
		require.Equal(t, []int{19, 1}, []int{o.Done, o.Skipped})
	})
}

// A group that may have one operation at a time says which it is, and of many that are begun at once one runs.
func TestExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newThings(100), newBucket()
		exclusive := func(c *Config) { c.Exclusive = true }
		runners := []*Runner{b.runner("a", s, exclusive), b.runner("b", s, exclusive)}
		defer runners[0].running(t)()
		defer runners[1].running(t)()
		for range 5 {
			errs := make(chan error)
			for i := range 8 {
				go func() {
					o := ofGroup("g")
					o.Rate = 1
					_, err := runners[i%2].Begin(t.Context(), o)
					errs <- err
				}()
			}
			begun := 0
			for range 8 {
				if err := <-errs; err == nil {
					begun++
				} else {
					_, ok := errors.AsType[*RunningError](err)
					require.True(t, ok, err)
				}
			}
			require.Equal(t, 1, begun)
			for _, o := range b.All() {
				_, err := runners[0].Cancel(t.Context(), o.ID)
				require.NoError(t, err)
			}
			time.Sleep(3 * time.Second)
		}
		require.Len(t, b.All(), 3, "a group keeps its last ones")
	})
}

// A group that may have several keeps those that run, and a new one takes the place of one that has ended.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newThings(1000), newBucket()
		r := b.runner("a", s, nil)
		defer r.running(t)()
		slow := ofGroup("g")
		slow.Rate = 0.1
		first, err := r.Begin(t.Context(), slow)
		require.NoError(t, err)
		for range 10 {
			o, err := r.Begin(t.Context(), slow)
			require.NoError(t, err)
			_, err = r.Cancel(t.Context(), o.ID)
			require.NoError(t, err)
			now, err := r.Get(t.Context(), first.ID)
			require.NoError(t, err)
			require.Equal(t, Running, now.State)
		}
		require.Len(t, b.All(), 3)
		for range 2 {
			_, err = r.Begin(t.Context(), slow)
			require.NoError(t, err)
		}
		_, err = r.Begin(t.Context(), slow)
		require.ErrorIs(t, err, stored.ErrConflict, "all places have one that runs")
	})
}

// An identifier leads to the place of its operation. One of an earlier build has no number.
func TestIdentifiers(t *testing.T) {
	table := &Table{kept: 20}
	for id, want := range map[string]registry.ID{
		ID("7", 3): {Group: "7", Name: "3"}, ID("redrive", 45): {Group: "redrive", Name: "5"}, "Xy12": {Name: "Xy12"}, "a-b": {Name: "a-b"},
	} {
		require.Equal(t, want, table.place(id), id)
	}
	for _, id := range []string{"", "*", "a.b-1", ">-1", "a b"} {
		_, err := table.Fresh(t.Context(), id)
		require.ErrorIs(t, err, stored.ErrNotFound, id)
	}
}
