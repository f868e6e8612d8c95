package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest/script"
	"github.com/jetpull/jetpull/internal/pull"
)

// msg is one delivery of a message.
type msg struct {
	id        ID
	delivered uint64
	number    uint64 // of the delivery
	key       string
	settled   atomic.Uint32 // a Settlement, by its handler
}

// Sequence and Nak make it a pull.Message.
func (m *msg) Sequence() uint64 { return m.id.Seq }
func (m *msg) Nak() error       { return nil }

// stage is a pool, and a server that only records. It is also the pool's log.
type stage struct {
	t      *testing.T
	mark   time.Time // when the last event of the script began
	pool   *Pool[*msg]
	stop   context.CancelFunc
	ended  chan struct{} // closed when Run has returned
	late   chan struct{} // closed at the end, for handlers that are stuck
	unsaid *msg          // was settled last
	over   context.CancelCauseFunc

	mu                sync.Mutex
	log               []string
	plan              map[uint64][]string // what the handler does with a message, attempt by attempt
	had               map[uint64]*msg     // messages that handlers have had
	returned, arrived pull.Credit
	deadLetterErr     error
	deaf              bool // acknowledgements of batches are not confirmed
}

func newStage(t *testing.T) *stage {
	return &stage{t: t, ended: make(chan struct{}), late: make(chan struct{}), plan: map[uint64][]string{}, had: map[uint64]*msg{}}
}

func (s *stage) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if d := time.Since(s.mark); d > 0 {
		text = fmt.Sprint("@", d, " ", text)
	}
	s.log = append(s.log, text)
}

func (s *stage) Enabled(context.Context, slog.Level) bool { return true }
func (s *stage) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *stage) WithGroup(string) slog.Handler            { return s }

func (s *stage) Handle(_ context.Context, r slog.Record) error {
	for text, short := range map[string]string{"at their last delivery": "last", "OrderedBy panicked": "nokey"} {
		r.Attrs(func(a slog.Attr) bool {
			if strings.Contains(r.Message, text) && strings.HasPrefix(a.Key, "sequence") {
				s.note("%s%v", short, a.Value)
			}
			return true
		})
	}
	return nil
}

// handle goes by the plan: ok, panic, exit (Goexit), nak (it hands the message back
// itself; nak9s goes on for so long), hang (until it is cancelled; hang+panic goes on with a panic), stuck
// (whatever happens), a duration and then ok, or an error: term, retry=5s, or any other.
func (s *stage) handle(ctx context.Context, ms []*msg) error {
	var seqs []string
	for _, m := range ms {
		seqs = append(seqs, strconv.FormatUint(m.id.Seq, 10))
	}
	s.note("%s%s", map[bool]string{true: "b", false: "h"}[s.pool.set.Batch > 0], strings.Join(seqs, ","))
	failed := failures{}
	for _, m := range ms {
		if err := s.do(ctx, m); err != nil {
			failed[m] = err
		}
	}
	return failed
}

// failures are the errors of messages.
type failures map[*msg]error

func (failures) Error() string { return "some failed" }

// confirm acknowledges the messages of a batch.
func (s *stage) confirm(_ context.Context, ms []*msg) error {
	for _, m := range ms {
		s.note("ack%d", m.id.Seq)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaf {
		return errors.New("no answer")
	}
	for _, m := range ms {
		m.settled.Store(uint32(Acked))
	}
	return nil
}

func (s *stage) do(ctx context.Context, m *msg) error {
	s.mu.Lock()
	s.had[m.id.Seq] = m
	do := "ok"
	if plan := s.plan[m.id.Seq]; len(plan) > 0 {
		do, s.plan[m.id.Seq] = plan[0], plan[1:]
	}
	s.mu.Unlock()
	if rest, ok := strings.CutPrefix(do, "nak"); ok {
		m.settled.Store(uint32(Naked))
		do = cmp.Or(rest, "ok")
	}
	if rest, ok := strings.CutPrefix(do, "hang+"); ok {
		<-ctx.Done()
		do = rest
	}
	switch do {
	case "ok":
		return nil
	case "panic":
		panic("boom")
	case "exit":
		runtime.Goexit()
	case "hang":
		<-ctx.Done()
		return context.Cause(ctx)
	case "stuck":
		<-s.late
		return nil
	}
	if d, err := time.ParseDuration(do); err == nil {
		time.Sleep(d)
		return nil
	}
	if d, ok := strings.CutPrefix(do, "retry="); ok {
		return verdict{Retry: true, After: script.Duration(d)}
	}
	if do == "term" {
		return verdict{Terminate: true, Reason: "asked"}
	}
	return errors.New(do)
}

// check follows the plan too: wait=5s, refuse or oops (a panic). Otherwise the message begins.
func (s *stage) check(ctx context.Context, m *msg) (context.Context, func(), error) {
	s.mu.Lock()
	do := ""
	if plan := s.plan[m.id.Seq]; len(plan) > 0 && (strings.HasPrefix(plan[0], "wait=") || plan[0] == "refuse" || plan[0] == "oops") {
		do, s.plan[m.id.Seq] = plan[0], plan[1:]
	}
	s.mu.Unlock()
	switch {
	case do == "refuse":
		return nil, nil, &Refusal{"too late"}
	case do == "oops":
		panic(do)
	case do != "":
		s.note("w%d", m.id.Seq)
		return nil, nil, &Wait{Until: For(script.Duration(strings.TrimPrefix(do, "wait=")))}
	}
	return ctx, func() { s.note("e%d", m.id.Seq) }, nil
}

// verdict is an error that asks for something.
type verdict Verdict

func (v verdict) Error() string { return v.Reason }

func notify(f func(context.Context)) bool {
	go f(context.Background())
	return true
}

func (s *stage) ops() Ops[*msg] {
	start := time.Now()
	var over context.Context
	over, s.over = context.WithCancelCause(context.Background())
	did := func(what string) func(*msg) error {
		return func(m *msg) error {
			s.note("%s%d", what, m.id.Seq)
			return nil
		}
	}
	return Ops[*msg]{
		Now:      func() pull.At { return time.Since(start) },
		Identify: func(m *msg) (ID, uint64, uint64) { return m.id, m.delivered, m.number },
		Size:     func(*msg) int { return 10 },

		Redelivered: new(atomic.Uint64),

		Handle: s.handle,
		Failure: func(err error, m *msg) error {
			if some, ok := errors.AsType[failures](err); ok {
				return some[m]
			}
			return err
		},
		Verdict: func(err error) Verdict {
			v, _ := err.(verdict) //nolint:errorlint // no handler wraps it
			return Verdict(v)
		},
		Settled: func(m *msg) Settlement { return Settlement(m.settled.Load()) },
		Ack:     did("ack"), AckAgain: did("ack"), Refused: func() error { return nil }, InProgress: did("wpi"),
		Nak:      func(m *msg, d time.Duration) error { return did(fmt.Sprintf("nak:%v ", d))(m) },
		Term:     func(m *msg, reason string) error { return did("term:" + reason + " ")(m) },
		HandBack: func(m *msg) { _ = did("back")(m) },
		Fresh:    func(context.Context) bool { return true },
		Failed:   func(*msg, int, string, time.Duration, error) {},
		Credit: func(c pull.Credit) {
			s.mu.Lock()
			s.returned = pull.Credit{N: s.returned.N + c.N, Bytes: s.returned.Bytes + c.Bytes}
			s.mu.Unlock()
		},
		Halt:   func() {},
		Over:   over,
		Report: &Reporter{Log: slog.New(s), Notifier: &Notifier{Start: notify}},
	}
}

// play plays a script of package script. Its events are
//
//	pool workers=2 keyed messages acknone keepalive=off wait=4s backoff=1s,2s maxdeliver=3
//	     remembers=9 delays=1s,2s attempts=3 drain=2s timeout=1s dead prefetch=9 manual stopafter=9
//	     reading=1s (of the consumer, after a failure) alone (with the consumer) asks (whether a message may begin) batch=2 delay=1s
//	do 7 err,5s,ok             what the handler does with message 7, attempt by attempt
//	in 1 2 3                   messages arrive; key=a n=2 (delivered) stored=9 number=7 (of the delivery)
//	+5s, stop (Run's context ends), end (for a reason of its own), close, next (Messages takes one)
//	settle 3 [nak] [unsaid]    what a handler left unsettled is settled; unsaid: the pool gets to know with said
//	changed (the configuration), closed (the Subscription), refused (dead letters are refused), accepted
//	deaf (acknowledgements of batches are not confirmed)
//
// h1 is a handler that begins, b1,2 that of a batch, w1 a message that may not begin yet, e1 the end of one that has begun. The
// other effects are ack1, nak:1s 1, term:reason 1, wpi1, dead1, back1, n1, run with the numbers of its error, and the reports last[1], nokey1.
func play(t *testing.T, text string) {
	s := newStage(t)
	script.Play(t, text, func(ws script.Words) {
		s.mu.Lock()
		s.mark = time.Now()
		s.mu.Unlock()
		s.event(ws)
		synctest.Wait()
	}, func() []string {
		s.mu.Lock()
		defer s.mu.Unlock()
		log := s.log
		s.log = nil
		slices.SortStableFunc(log, func(a, b string) int { return strings.Index(a, "last[") - strings.Index(b, "last[") }) // logged later
		return log
	})
	s.end()
}

func consumer(ws script.Words) Consumer {
	wait := ws.Durations("wait", "30s")[0]
	return Consumer{
		AckNone: ws.Has("acknone"), Shortest: wait, Longest: wait, BackOff: ws.Durations("backoff", "1s"),
		MaxDeliver: uint64(ws.Number("maxdeliver", 0)), WindowMost: 100, Remembers: ws.Number("remembers", 9),
		Alone: ws.Has("alone"),
	}
}

func (s *stage) event(ws script.Words) {
	switch ws[0] {
	case "pool":
		s.open(ws)
	case "do":
		s.plan[uint64(script.Number(ws[1]))] = strings.Split(ws[2], ",")
	case "in":
		s.deliver(ws)
	case "stop":
		s.stop()
	case "end":
		s.pool.End(errors.New("why"))
	case "close":
		s.pool.Close()
	case "next":
		go func() {
			m, ok := s.pool.Next(s.t.Context())
			if !ok {
				m = &msg{}
			}
			s.note("n%d", m.id.Seq)
		}()
	case "settle":
		m := s.had[uint64(script.Number(ws[1]))]
		how := Acked
		if ws.Has("nak") {
			how = Naked
		}
		m.settled.Store(uint32(how))
		if s.unsaid = m; !ws.Has("unsaid") {
			s.pool.Vacate(m, m.id)
		}
	case "said":
		s.pool.Vacate(s.unsaid, s.unsaid.id)
	case "changed":
		s.pool.End(ErrReconfigured)
	case "closed":
		s.over(errors.New("closed"))
	case "deaf":
		s.mu.Lock()
		s.deaf = true
		s.mu.Unlock()
	case "refused", "accepted":
		s.mu.Lock()
		s.deadLetterErr = map[string]error{"refused": errors.New("no stream")}[ws[0]]
		s.mu.Unlock()
	default:
		time.Sleep(script.Duration(ws[0]))
	}
}

// open makes the pool, and runs it.
func (s *stage) open(ws script.Words) {
	ops := s.ops()
	if ws.Has("keyed") {
		ops.Key = func(m *msg) string { return strings.Split(m.key, "=")[1] } // it panics without a key
	}
	if ws.Has("dead") {
		ops.DeadLetter = func(_ context.Context, m *msg, _ string, _ int) error {
			s.note("dead%d", m.id.Seq)
			time.Sleep(ws.Durations("storing", "0s")[0])
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.deadLetterErr
		}
	}
	if d := ws.Durations("reading", "0s")[0]; d > 0 {
		ops.Fresh = func(ctx context.Context) bool {
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
			return true
		}
	}
	if ws.Has("asks") {
		ops.Checks = []Check[*msg]{s.check}
	}
	set := Settings{
		Workers: max(1, ws.Number("workers", 0)), Prefetch: ws.Number("prefetch", 0), KeepAlive: !ws.Has("keepalive=off"),
		MaxAttempts: ws.Number("attempts", 0),
		RetryDelays: ws.Durations("delays", ""), HandlerTimeout: ws.Durations("timeout", "0s")[0], DrainTimeout: ws.Durations("drain", "30s")[0],
		ManualAck: ws.Has("manual"), StopAfter: ws.Number("stopafter", 0), DrainBuffered: ws.Has("buffered"),
		Batch: ws.Number("batch", 0), BatchDelay: ws.Durations("delay", "0s")[0],
	}
	if set.Batch > 0 {
		ops.Confirm = s.confirm
	}
	if ws.Has("messages") {
		ops.Handle = nil
	}
	s.run(ops, set, consumer(ws))
}

func (s *stage) run(ops Ops[*msg], set Settings, c Consumer) {
	ctx, stop := context.WithCancel(s.t.Context())
	s.stop, s.pool = stop, New(ops, set, c)
	if ops.Handle == nil {
		close(s.ended)
		return
	}
	go func() {
		defer close(s.ended)
		err := s.pool.Run(ctx)
		if err == nil {
			s.note("run")
			return
		}
		var ran, left, unsettled, unstarted int
		var after string
		const format = "%d handlers ran for more than %s after the end and were cancelled, and %d of them go on; %d messages were left unsettled; %d " +
			"messages"
		if _, wrong := fmt.Sscanf(err.Error(), format, &ran, &after, &left, &unsettled, &unstarted); wrong != nil {
			s.note("run: %v", err)
			return
		}
		s.note("run: %d ran, %d left, %d unstarted, %d unsettled", ran, left, unstarted, unsettled)
	}()
}

func (s *stage) deliver(ws script.Words) {
	var ms []pull.Message
	for _, w := range ws[1:] {
		if seq, err := strconv.ParseUint(w, 10, 64); err == nil { // or key=value
			ms = append(ms, &msg{
				id: ID{seq, int64(ws.Number("stored", 0))}, delivered: uint64(max(1, ws.Number("n", 0))),
				number: uint64(ws.Number("number", 0)), key: ws[len(ws)-1],
			})
		}
	}
	s.arrive(ms)
}

func (s *stage) arrive(ms []pull.Message) {
	s.arrived = pull.Credit{N: s.arrived.N + len(ms), Bytes: s.arrived.Bytes + 10*len(ms)}
	s.pool.Deliver(ms)
}

// end ends the pool, and checks that nothing is held and all credit is back.
func (s *stage) end() {
	close(s.late)
	s.stop()
	<-s.ended
	time.Sleep(time.Hour) // for handlers that are not over
	s.pool.Close()
	synctest.Wait()
	q := &s.pool.queue
	waiting, running, _ := s.pool.Size()
	require.Zero(s.t, waiting+running+q.n+len(q.lines)+q.ready.n, "messages are held")
	require.Equal(s.t, s.arrived, pull.Credit{N: s.returned.N + q.credit.N, Bytes: s.returned.Bytes + q.credit.Bytes}, "credit")
}
