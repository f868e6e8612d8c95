package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/relayhistory"
	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

const (
	takeover = 8 * time.Second
	// faultTime is how long processes stop and die. calmTime bounds the time after that until all messages have ended.
	faultTime = time.Minute
	calmTime  = 2 * time.Hour
)

// world is one schedule.
type world struct {
	t    *testing.T
	seed uint64
	srv  *natsembed.Server

	outside sync.WaitGroup // senders, requests on their way, and processes that end

	mu        sync.Mutex
	log       strings.Builder
	run       *relayhistory.Run
	receivers map[string]*receiver
	processes []*process
	drawn     map[string]int // the number of draws for each purpose
	redrives  []time.Duration
	faults    bool // processes die, and requests get lost
	kills     int
	crashes   int
}

// newWorld returns a world with a drawn plan.
func newWorld(t *testing.T, seed uint64) *world {
	w := emptyWorld(t, seed)
	r := w.chance("plan")
	if r.IntN(2) == 0 {
		w.redrives = []time.Duration{upTo(r, 3*time.Second)}
	}
	for i := range 1 + r.IntN(3) {
		w.processes = append(w.processes, w.start(i))
	}
	w.configure(r)
	return w
}

func emptyWorld(t *testing.T, seed uint64) *world {
	srv, err := natsembed.Start(context.Background(), natsembed.Options{Port: natsembed.NoPort})
	require.NoError(t, err)
	w := &world{
		t: t, seed: seed, srv: srv, receivers: map[string]*receiver{}, drawn: map[string]int{}, faults: true,
		run: &relayhistory.Run{
			Receivers: map[string]relayhistory.Receiver{}, Offered: map[string]string{}, Accepted: map[string]bool{},
			Order: map[string][]string{}, Ends: map[string]relayhistory.End{}, Reported: map[string][]string{}, Latest: map[string]time.Time{},
			Redriven: map[string]int{},
		},
	}
	work.OnCrashpoint(w.crashpoint)
	return w
}

// chance returns random numbers for the next draw of a purpose, which are independent of other draws.
func (w *world) chance(what string) *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drawn[what]++
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s#%d", what, w.drawn[what])
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d) + 1)) }

// note adds a line to the log of the schedule.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintf(&w.log, "%s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

// process is one run of a relay process.
type process struct {
	w       *world
	name    string
	nc      *nats.Conn
	store   *store.Store
	workers *work.Workers
	dead    chan struct{} // closed when it was killed
	ending  atomic.Bool
	ended   chan struct{} // closed when it has ended
}

type silent struct{}

func (silent) Report(context.Context, error, ...any) {}

func (w *world) start(i int) *process {
	p := &process{w: w, name: fmt.Sprint("p", i), dead: make(chan struct{}), ended: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	p.nc, p.store = w.open(log)
	p.workers = work.Start(context.Background(), p.store, work.Config{
		Rules: work.Rules{
			Concurrency: 4, Takeover: takeover, Drain: 5 * time.Second, MaxResponse: 1000, PollDeadline: calmTime, CallbackDeadline: calmTime,
			AutoRedrive: w.redrives,
		},
		Client: p, Logger: log, Reporter: silent{},
	})
	return p
}

// open opens the store of a process without workers.
func (w *world) open(log *slog.Logger) (*nats.Conn, *store.Store) {
	nc, err := w.srv.Connect(nats.NoReconnect())
	require.NoError(w.t, err)
	s, err := store.Open(context.Background(), nc, store.Config{
		Name: "relay", Replicas: 1, Tombstone: 24 * time.Hour, Logger: log,
		// The server lives as long as the schedule, and each consumer of a process costs time at every start.
		Storage: jetstream.MemoryStorage, Partitions: 1,
	})
	require.NoError(w.t, err)
	return nc, s
}

// over ends a process, once. A second caller, such as a kill during a stop, waits on a channel, because virtual time stands still
// while a goroutine waits for a lock.
func (p *process) over() {
	if p.ending.Swap(true) {
		<-p.ended
		return
	}
	p.workers.Close()
	p.store.Close()
	p.nc.Close()
	close(p.ended)
}

func (p *process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// kill cuts a process off from the server and from its requests. Its goroutines then end by themselves.
func (w *world) kill(p *process) {
	w.mu.Lock()
	killed := !p.isDead()
	if killed {
		close(p.dead)
	}
	w.mu.Unlock()
	if !killed {
		return
	}
	w.note("%s dies", p.name)
	p.nc.Close()
	w.outside.Go(p.over)
}

// crashpoint sometimes kills the process that has reached a named point.
func (w *world) crashpoint(node, point string) {
	w.mu.Lock()
	faults, processes := w.faults, append([]*process(nil), w.processes...)
	w.mu.Unlock()
	odds := 25
	if strings.HasSuffix(point, "-redriven") {
		odds = 3 // it is reached once in a few schedules
	}
	for _, p := range processes {
		if faults && p.workers.Node == node && w.chance(point).IntN(odds) == 0 {
			w.note("%s is at %s", p.name, point)
			w.mu.Lock()
			w.crashes++
			w.mu.Unlock()
			w.kill(p)
			runtime.Goexit()
		}
	}
}

// configure draws receivers, and configures the sender's callback.
func (w *world) configure(r *rand.Rand) {
	sender := store.Sender{Named: store.Named{Name: "git"}, SenderConfig: store.SenderConfig{
		CallbackEndpoint: "http://git/told", Token: "x", Sources: []string{""},
	}}
	require.NoError(w.t, w.processes[0].store.Senders.Put(context.Background(), sender))
	for i := range 1 + r.IntN(3) {
		w.add(drawReceiver(r, fmt.Sprint("r", i)), upTo(r, 2*time.Second))
	}
}

// add configures a receiver.
func (w *world) add(e *receiver, retryAfter time.Duration) {
	w.receivers[e.name] = e
	c := store.Receiver{
		Named: store.Named{Name: e.name}, Window: e.Window, RetryAfter: retryAfter, Timeout: receiverTimeout, TTL: e.TTL,
		ReceiverConfig: store.ReceiverConfig{
			PostEndpoint: "http://" + e.name + "/post", RateLimit: e.Limit, MaxRetries: e.MaxRetries, Order: store.Order(e.Order), UnknownOutcome: e.Unknown,
		},
	}
	if e.Asked {
		c.StatusEndpoint = "http://" + e.name + "/status/{source_id}/{message_id}"
	}
	require.NoError(w.t, w.processes[0].store.Receivers.Put(context.Background(), c))
	w.note("%s: %+v", e.name, e.behaviour)
	w.note("%s: %+v", e.name, e.Traits)
}

// play lets senders submit messages while processes stop and die.
func (w *world) play() {
	r := w.chance("play")
	var senders sync.WaitGroup
	for i := range 1 + r.IntN(4) {
		n, source := 1+r.IntN(8), fmt.Sprint("s", i)
		senders.Go(func() { w.sender(source, n) })
	}
	senders.Go(w.unpinNowAndThen)
	for range r.IntN(5) {
		pause, i, graceful := upTo(r, faultTime/5), r.IntN(len(w.processes)), r.IntN(3) == 0
		<-time.After(pause)
		w.restart(i, graceful, upTo(r, 5*time.Second))
	}
	w.mu.Lock()
	w.faults = false
	w.mu.Unlock()
	for i, p := range w.processes {
		if p.isDead() {
			w.restart(i, false, 0)
		}
	}
	senders.Wait()
}

// unpinNowAndThen takes the pins of receivers, as an operator may, so that two processes have entries of a receiver at a time.
func (w *world) unpinNowAndThen() {
	for r, n := w.chance("unpins"), w.chance("unpins").IntN(4); n > 0; n-- {
		<-time.After(upTo(r, faultTime/5))
		if p := w.living(r); p != nil {
			durable := p.store.Durable(store.ToReceiver, fmt.Sprint("r", r.IntN(len(w.receivers))))
			// It fails if the receiver has no lane, or the process dies.
			err := jetpull.Unpin(context.Background(), p.store.JetStream(), p.store.StreamName(store.ToReceiver), durable, "relay")
			w.note("an operator unpins %s: %v", durable, err)
		}
	}
}

// restart ends a process, in good order or not, and starts it again after a while.
func (w *world) restart(i int, graceful bool, down time.Duration) {
	p := w.processes[i]
	if graceful && !p.isDead() {
		w.note("%s stops", p.name)
		p.over()
	} else {
		w.kill(p)
	}
	<-time.After(down)
	next := w.start(i)
	w.mu.Lock()
	w.kills++
	w.processes[i] = next
	w.mu.Unlock()
	w.note("%s starts", next.name)
}

// sender submits messages, one after the other, each until it is accepted, and sometimes once more.
func (w *world) sender(source string, n int) {
	submit := w.submit
	if w.chance(source+" way").IntN(3) == 0 {
		submit = w.publish // for all messages: messages that come in two ways have no order
	}
	for i := range n {
		r := w.chance(source)
		id := fmt.Sprint(i)
		receiver := fmt.Sprint("r", r.IntN(len(w.receivers)))
		w.mu.Lock()
		w.run.Offered[source+"/"+id] = receiver
		w.mu.Unlock()
		<-time.After(upTo(r, 3*time.Second))
		for times := 1 + r.IntN(4)/3; times > 0; {
			if submit(r, source, id, receiver) {
				times--
				continue
			}
			<-time.After(200 * time.Millisecond)
		}
		w.mu.Lock()
		w.run.Accepted[source+"/"+id] = true
		if ttl := w.receivers[receiver].TTL; ttl > 0 {
			w.run.Latest[source+"/"+id] = time.Now().Add(ttl + wayTime)
		}
		w.run.Order[source] = append(w.run.Order[source], source+"/"+id)
		w.mu.Unlock()
	}
}

// living draws a process that may be alive, or returns nil.
func (w *world) living(r *rand.Rand) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.processes[r.IntN(len(w.processes))]; !p.isDead() {
		return p
	}
	return nil
}

// submit submits a message as the HTTP route does.
func (w *world) submit(r *rand.Rand, source, id, receiver string) bool {
	p := w.living(r)
	if p == nil {
		return false
	}
	offer := work.Offer{Source: source, ID: id, Receiver: receiver, Sender: "git", Payload: []byte(`1`)}
	intakes := make(chan *work.Intake, 1)
	w.outside.Go(func() {
		defer close(intakes) // also if the process is killed at one of the points
		intakes <- p.workers.Submit(context.Background(), []work.Offer{offer})[0]
	})
	in, answered := <-intakes
	if !answered {
		in = &work.Intake{}
	}
	w.note("%s/%s for %s by %s: %q %q %v %v", source, id, receiver, p.name, in.Outcome, in.Status, in.Err, answered)
	return answered && in.Err == nil && !p.isDead()
}

// publish submits a message over NATS.
func (w *world) publish(r *rand.Rand, source, id, receiver string) bool {
	p := w.living(r)
	if p == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	m := &nats.Msg{Subject: "relay.from_sender." + source, Data: []byte(`1`)}
	m.Header = nats.Header{work.HeaderMessageID: {id}, work.HeaderReceiver: {receiver}}
	_, err := p.store.JetStream().PublishMsg(ctx, m)
	w.note("%s/%s for %s over NATS: %v", source, id, receiver, err)
	return err == nil
}

// calm waits until all messages have ended and their ends were reported, and returns those that are missing. All processes handle
// them, or one does and the others have stopped in good order.
func (w *world) calm() (wrongs []string) {
	if w.chance("calm").IntN(2) == 0 {
		for _, p := range w.processes[1:] {
			p.over()
		}
	}
	w.mu.Lock()
	s, keys := w.processes[0].store, slices.Sorted(maps.Keys(w.run.Offered))
	w.mu.Unlock()
	deadline := time.Now().Add(calmTime)
	for _, key := range keys {
		for wrong := w.unsettled(s, key); wrong != ""; wrong = w.unsettled(s, key) {
			if time.Now().After(deadline) {
				return []string{wrong}
			}
			<-time.After(time.Second)
			for !w.isReported(key) && time.Now().Before(deadline) {
				<-time.After(time.Second)
			}
		}
	}
	// By now, a message that must not be sent again would have been redelivered and sent.
	<-time.After(takeover + takeover/2)
	for _, key := range keys {
		if wrong := w.unsettled(s, key); wrong != "" {
			wrongs = append(wrongs, wrong)
		}
	}
	return wrongs
}

func (w *world) isReported(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.run.Reported[key]) > 0
}

// unsettled logs the state of a message, and returns the part of its end that is missing.
func (w *world) unsettled(s *store.Store, key string) string {
	source, id, _ := strings.Cut(key, "/")
	v, err := s.Load(context.Background(), source, id)
	if err != nil {
		return err.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	end := relayhistory.End{Status: string(v.Status), Response: strings.Trim(string(v.Response), `"`)}
	if v.Failure != nil {
		end.Reason = string(v.Failure.Reason)
	}
	w.run.Ends[key], w.run.Redriven[key] = end, v.Generation
	due := v.Failure != nil && v.Failure.Reason.Infrastructure() && v.Generation < len(w.redrives)
	if due || !v.Status.Ended() || v.Status == machine.Failed && !v.Reported || !slices.Contains(w.run.Reported[key], end.Status) {
		return fmt.Sprintf("%s has not ended: %+v", key, v.Record)
	}
	return ""
}

func (w *world) close() {
	for _, p := range w.processes {
		p.over()
	}
	w.outside.Wait()
	synctest.Wait() // the server sleeps in its shutdown with a lock that a request in progress would wait for, and then time stands still
	w.srv.Stop()
	for name, e := range w.receivers {
		w.run.Receivers[name] = relayhistory.Receiver{Traits: e.Traits, Posts: e.posts}
	}
}
