package limit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func open(t *testing.T, s *server, c Config) *Limiter {
	t.Helper()
	l, err := Open(t.Context(), s.link(), "calls", c)
	require.NoError(t, err)
	return l
}

func acquire(t *testing.T, l *Limiter, key string) (release func()) {
	t.Helper()
	release, err := l.Acquire(t.Context(), key)
	require.NoError(t, err)
	return release
}

// refuses requires that no handler of a key begins within d.
func refuses(t *testing.T, l *Limiter, key string, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	_, err := l.Acquire(ctx, key)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// TestOpenRefuses: each error names the invalid value.
func TestOpenRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		c    Config
		ttl  time.Duration // of the bucket
		want string
	}{
		{"calls", Config{}, 0, "Rate and Concurrent are 0"},
		{"calls", Config{Rate: -1, Window: time.Second}, 0, "Rate -1"},
		{"calls", Config{Concurrent: -2}, 0, "Concurrent -2"},
		{"calls", Config{Rate: 1, Window: 99 * time.Millisecond}, 0, "Window 99ms"},
		{"calls", Config{Rate: 1}, 0, "Window 0s"},
		{"calls", Config{Concurrent: 1, Window: time.Second}, 0, "Window 1s has no Rate"},
		{"calls", Config{Concurrent: 1, TTL: time.Millisecond}, 0, "TTL 1ms"},
		{"a.b", Config{Concurrent: 1}, 0, `name "a.b"`},
		{"", Config{Concurrent: 1}, 0, `name ""`},
		{"calls", Config{Rate: 1, Window: 10 * time.Second}, 39 * time.Second, "TTL of 39s"},
	} {
		link := newServer(1).link()
		link.ttl = tt.ttl
		l, err := Open(t.Context(), link, tt.name, tt.c)
		require.ErrorContains(t, err, tt.want)
		require.Nil(t, l)
	}
	_, err := Open(t.Context(), nil, "calls", Config{Concurrent: 1})
	require.ErrorContains(t, err, "the bucket is nil")
}

// TestAnotherConfig: the error for another configuration contains both, and the error for an invalid value names its key.
func TestAnotherConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		l := open(t, s, Config{Rate: 10, Window: time.Second})
		same := open(t, s, Config{Rate: 10, Window: time.Second, TTL: 10 * time.Second})
		_, err := Open(t.Context(), s.link(), "calls", Config{Rate: 20, Window: time.Second})
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, "has Rate 10,")
		require.ErrorContains(t, err, "not Rate 20,")
		s.put("calls.config", []byte("{"))
		_, err = Open(t.Context(), s.link(), "calls", Config{Rate: 10, Window: time.Second})
		require.ErrorContains(t, err, `the key "calls.config"`)
		require.NoError(t, errors.Join(l.Close(t.Context()), same.Close(t.Context())))
	})
}

// TestAHighRateCostsFewWrites: 10,000 begins a second cost at most 20 writes a second, and most of the rate is used.
func TestAHighRateCostsFewWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		l := open(t, s, Config{Rate: 10_000, Window: time.Second})
		const seconds = 10
		ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
		defer cancel()
		begins, before := 0, s.written()
		for {
			release, err := l.Acquire(ctx, "k")
			if err != nil {
				break
			}
			release()
			begins++
		}
		writes := s.written() - before
		t.Logf("%d begins, %d writes in %d s", begins, writes, seconds)
		require.LessOrEqual(t, writes, 20*seconds+1)
		require.Greater(t, begins, 9_000*seconds)
		require.LessOrEqual(t, begins, 10_000*(seconds+1))
		require.NoError(t, l.Close(t.Context()))
	})
}

// TestALimitThatIsNotReached: a process that begins a handler each ms, below its Rate, waits only for the first.
func TestALimitThatIsNotReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		l := open(t, s, Config{Rate: 100_000, Window: time.Second, Concurrent: 4})
		acquire(t, l, "k")()
		for range 5000 {
			before := time.Now()
			release := acquire(t, l, "k")
			require.Zero(t, time.Since(before))
			time.Sleep(time.Millisecond)
			release()
		}
		require.NoError(t, l.Close(t.Context()))
	})
}

// TestAnOutage: while the bucket cannot be reached, only handlers that the process has reserved begin, for less than the TTL. Other callers wait as
// long as their contexts allow. After the outage, handlers begin again.
func TestAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		link := s.link()
		l, err := Open(t.Context(), link, "calls", Config{Rate: 100, Window: time.Second, TTL: 2 * time.Second})
		require.NoError(t, err)
		acquire(t, l, "k")
		s.mu.Lock()
		link.cut = true
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		more := 0
		for {
			if _, err := l.Acquire(ctx, "k"); err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				break
			}
			more++
		}
		require.Equal(t, l.cfg.share(1)-1, more, "the rest of the slice")
		s.mu.Lock()
		link.cut = false
		s.mu.Unlock()
		acquire(t, l, "k")
		require.NoError(t, l.Close(t.Context()))
	})
}

// TestATurnThatNobodyTakes: if a caller of Await does not call TryAcquire, the next caller begins soon, even while the bucket does not answer.
func TestATurnThatNobodyTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		link := s.link()
		l, err := Open(t.Context(), link, "calls", Config{Rate: 100, Window: time.Second, TTL: 6 * time.Second})
		require.NoError(t, err)
		acquire(t, l, "k")()
		s.mu.Lock()
		link.cut = true
		s.mu.Unlock()
		time.Sleep(200 * time.Millisecond) // a write is under way
		require.NoError(t, l.Await(t.Context(), "k"))
		before := time.Now()
		require.NoError(t, l.Await(t.Context(), "k"))
		require.Equal(t, offerLasts, time.Since(before))
		s.mu.Lock()
		link.cut = false
		s.mu.Unlock()
		require.NoError(t, l.Close(t.Context()))
	})
}

// TestTheBucketIsCreatedAgain: processes that use a key while the bucket is deleted and created again, so that its revisions start at 1, go on.
func TestTheBucketIsCreatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		c := Config{Rate: 100, Window: time.Second, Concurrent: 2, TTL: 2 * time.Second}
		a, b := open(t, s, c), open(t, s, c)
		for range 300 {
			acquire(t, a, "k")()
			acquire(t, b, "k")()
		}
		s.mu.Lock()
		s.entries, s.revision = map[string]entry{}, 0
		s.mu.Unlock()
		newcomer := open(t, s, c)
		acquire(t, newcomer, "k")()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		begins := make(chan int, 2)
		for _, l := range []*Limiter{a, b} {
			go func() {
				for n := 0; ; n++ {
					release, err := l.Acquire(ctx, "k")
					if err != nil {
						begins <- n
						return
					}
					time.Sleep(10 * time.Millisecond)
					release()
				}
			}()
		}
		for range 2 {
			require.Greater(t, <-begins, 500)
		}
		require.NoError(t, errors.Join(a.Close(t.Context()), b.Close(t.Context()), newcomer.Close(t.Context())))
	})
}

// TestUnreadableRecords: a record that cannot be read counts as full, even if it replaces a valid one. Handlers of the key begin again after the TTL
// and a window.
func TestUnreadableRecords(t *testing.T) {
	for _, value := range []string{
		"", "{", "[]", `{"used":[{"n":-1}]}`, `{"used":[{"n":1,"age":-1}]}`, `{"holders":[{"id":"x","open":9999999999}]}`, `{"holders":[{"run":-1}]}`,
		`{"holders":[{"id":"x","age":9223372036854775807}]}`, `{"used":[{"n":1.5}]}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(1)
			s.put(bucketKey("calls", "k"), []byte(value))
			l := open(t, s, Config{Rate: 2, Window: time.Second, Concurrent: 2, TTL: 2 * time.Second})
			refuses(t, l, "k", 2*time.Second)
			release := acquire(t, l, "k")
			s.put(bucketKey("calls", "k"), []byte(value))
			refuses(t, l, "k", 1500*time.Millisecond)
			ctx, cancel := l.Context(t.Context(), "k")
			defer cancel()
			release()
			acquire(t, l, "k")()
			_ = ctx
			require.NoError(t, l.Close(t.Context()))
		})
	}
}

// TestAForgedRecord: a record of processes that do not exist delays a key for the TTL and a window.
func TestAForgedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		var forged strings.Builder
		for n := range 1000 {
			fmt.Fprintf(&forged, `,{"id":"g%d","open":1000000,"run":1000000,"lacks":"run","wait":1000000000000}`, n)
		}
		s.put(bucketKey("calls", "k"), []byte(`{"holders":[`+forged.String()[1:]+`]}`))
		l := open(t, s, Config{Rate: 2, Window: time.Second, Concurrent: 2, TTL: 2 * time.Second})
		before := time.Now()
		acquire(t, l, "k")()
		require.Less(t, time.Since(before), 4*time.Second)
		require.NoError(t, l.Close(t.Context()))
	})
}

// TestManyKeys: keys do not wait for each other, and a key that is not used any more costs nothing.
func TestManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		l := open(t, s, Config{Rate: 1, Window: time.Hour, Concurrent: 1})
		before := time.Now()
		for n := range 2000 {
			acquire(t, l, strings.Repeat("long ", n%80)+fmt.Sprint(n))()
		}
		require.Less(t, time.Since(before), 20*time.Second)
		refuses(t, l, "0", time.Minute)
		time.Sleep(time.Second)
		l.mu.Lock()
		require.Empty(t, l.keys)
		l.mu.Unlock()
		require.NoError(t, l.Close(t.Context()))
	})
}

// TestAContextEnds: a caller whose context ends returns at once, and the next caller begins.
func TestAContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, newServer(1), Config{Concurrent: 1})
		release := acquire(t, l, "k")
		cause := errors.New("not needed")
		ctx, cancel := context.WithCancelCause(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := l.Acquire(ctx, "k")
			first <- err
		}()
		synctest.Wait()
		second := make(chan error, 1)
		go func() {
			_, err := l.Acquire(t.Context(), "k")
			second <- err
		}()
		synctest.Wait()
		before := time.Now()
		cancel(cause)
		require.ErrorIs(t, <-first, cause)
		require.Zero(t, time.Since(before))
		_, err := l.Acquire(ctx, "other")
		require.ErrorIs(t, err, cause)
		release()
		release()
		require.NoError(t, <-second)
		l.mu.Lock()
		require.Equal(t, 1, l.keys[bucketKey(l.name, "k")].running, "a second release does nothing")
		l.mu.Unlock()
		l.stop()
	})
}

// TestClose: callers that wait return, and another process can begin as soon as the handlers have been released.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		c := Config{Rate: 100, Window: time.Minute, Concurrent: 2}
		a, b := open(t, s, c), open(t, s, c)
		release := acquire(t, a, "k")
		acquire(t, a, "k")()
		acquire(t, a, "j")()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		blocked := make(chan error, 1)
		x := acquire(t, a, "k")
		go func() {
			_, err := a.Acquire(t.Context(), "k")
			blocked <- err
		}()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- a.Close(ctx) }()
		require.ErrorIs(t, <-blocked, ErrClosed)
		release()
		x()
		require.NoError(t, <-closed)
		require.NoError(t, a.Close(t.Context()))
		_, err := a.Acquire(t.Context(), "k")
		require.ErrorIs(t, err, ErrClosed)
		before := time.Now()
		for range 97 {
			acquire(t, b, "k")()
		}
		require.Less(t, time.Since(before), time.Second)
		refuses(t, b, "k", 50*time.Second)
		acquire(t, b, "j")
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		require.ErrorIs(t, b.Close(ctx), context.DeadlineExceeded, "a handler runs")
	})
}

// TestProcessesTakeTurns: if two processes each want the whole limit, each gets its part.
func TestProcessesTakeTurns(t *testing.T) {
	for _, c := range []Config{
		{Rate: 1, Window: 100 * time.Millisecond},
		{Rate: 100, Window: time.Second},
		{Concurrent: 1},
		{Concurrent: 3},
		{Rate: 50, Window: time.Second, Concurrent: 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var counts [2]int
			ended := make(chan struct{})
			for n := range counts {
				l := open(t, s, c)
				go func() {
					for {
						release, err := l.Acquire(ctx, "k")
						if err != nil {
							break
						}
						counts[n]++
						time.Sleep(5 * time.Millisecond)
						release()
					}
					_ = l.Close(t.Context())
					ended <- struct{}{}
				}()
			}
			<-ended
			<-ended
			t.Logf("%v: %v", &c, counts)
			require.Greater(t, 4*min(counts[0], counts[1]), counts[0]+counts[1], "%v", &c)
		})
	}
}
