package partition

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/partition"
	"github.com/jetpull/jetpull/test/servertest"
)

var (
	faultMessages = flag.Int("partition.messages", 1200, "messages of TestMembersCrash")
	partitions    = flag.Int("partition.partitions", 16, "partitions of the same")
	faultCount    = flag.Int("partition.faults", 8, "faults of TestMembersCrash")
)

// create creates the stream of the tests, which adds the partition to each subject.
func create(t *testing.T, js jetstream.JetStream, partitions, replicas int, retention jetstream.RetentionPolicy) {
	t.Helper()
	transform := partition.Transform(partitions, "orders.*")
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders.*"}, SubjectTransform: &transform, Replicas: replicas, Retention: retention,
	})
	require.NoError(t, err)
}

// fleet is members in processes of their own.
type fleet struct {
	t   *testing.T
	js  jetstream.JetStream
	set *partition.Set
	url string
	cfg partition.Config

	replicas int
	mu       sync.Mutex
	events   []event
	stops    []frozen
	success  map[string]bool // the messages that have succeeded
	ahead    chan struct{}   // has an element for each message that was published and has not succeeded
	procs    map[string]*proc
	number   int
}

type proc struct {
	cmd   *exec.Cmd
	proxy *natstest.Proxy // its link, where there is one server
	read  chan struct{}   // closed when its output has ended
}

func (f *fleet) start() string {
	f.number++
	name := fmt.Sprintf("m%d", f.number)
	p := &proc{read: make(chan struct{})}
	url := f.url
	if f.replicas == 1 {
		p.proxy = natstest.NewProxy(f.t, url)
		url = p.proxy.URL()
	}
	settings, err := json.Marshal(memberSettings{Name: name, URL: url, Config: f.cfg, Work: 5 * time.Millisecond, Fail: 20})
	require.NoError(f.t, err)
	cmd := exec.CommandContext(context.WithoutCancel(f.t.Context()), os.Args[0])
	cmd.Env = append(os.Environ(), "PARTITION_MEMBER="+string(settings), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, cmd.Start())
	p.cmd = cmd
	f.procs[name] = p
	go func() {
		defer close(p.read)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) != nil {
				continue // a line that a kill cut off
			}
			e.member = name
			f.mu.Lock()
			f.events = append(f.events, e)
			if id := fmt.Sprint(e.Key, " ", e.Number); e.Kind == "ok" && !f.success[id] {
				f.success[id] = true
				<-f.ahead
			}
			f.mu.Unlock()
		}
	}()
	return name
}

// end signals a member, and waits until its output has been read.
func (f *fleet) end(name string, sig syscall.Signal) {
	p := f.procs[name]
	delete(f.procs, name)
	if sig == syscall.SIGKILL {
		f.mu.Lock()
		f.stops = append(f.stops, frozen{member: name, from: time.Now(), dead: true})
		f.mu.Unlock()
	}
	require.NoError(f.t, p.cmd.Process.Signal(sig))
	<-p.read
	err := p.cmd.Wait()
	if sig == syscall.SIGTERM && err != nil && err.Error() == "signal: terminated" { // before it could be caught
		f.mu.Lock()
		f.stops = append(f.stops, frozen{member: name, from: time.Now(), dead: true})
		f.mu.Unlock()
		return
	}
	if sig != syscall.SIGKILL {
		require.NoError(f.t, err, name)
	}
}

// freeze stops a member's process for longer than the TTL.
func (f *fleet) freeze(name string) {
	p := f.procs[name]
	from := time.Now()
	require.NoError(f.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	f.passOn(name, from)
	f.mu.Lock()
	f.stops = append(f.stops, frozen{member: name, from: from, to: time.Now()})
	f.mu.Unlock()
	require.NoError(f.t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// cutOff has a member's link lose all bytes for longer than the TTL. Its process runs, so it has to stop by itself.
func (f *fleet) cutOff(name string) {
	proxy := f.procs[name].proxy
	from := time.Now()
	proxy.BlackHole(true)
	f.passOn(name, from)
	proxy.BlackHole(false)
}

// passOn waits until other members have the partitions of one that is silent.
func (f *fleet) passOn(name string, from time.Time) {
	f.eventually("another member has its partitions", func() bool {
		if time.Since(from) <= f.cfg.TTL {
			return false
		}
		all, err := f.set.Status(f.t.Context())
		return err == nil && !slices.ContainsFunc(all, func(p partition.Partition) bool { return p.Member == name })
	})
}

func (f *fleet) eventually(what string, done func() bool) {
	f.t.Helper()
	require.Eventually(f.t, done, 2*time.Minute, 20*time.Millisecond, what)
}

// more waits until so many more messages have succeeded, or all.
func (f *fleet) more(n int) {
	f.t.Helper()
	until := min(f.handled()+n, *faultMessages)
	f.eventually("more messages are handled", func() bool { return f.handled() >= until })
}

func (f *fleet) any() string {
	for name := range f.procs {
		return name
	}
	return ""
}

// handled counts the messages that have succeeded.
func (f *fleet) handled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.success)
}

// aheadPerPartition bounds how many messages wait for their handling. A member that is silent holds those of its partitions, so that
// the others do not handle all messages before the next fault.
const aheadPerPartition = 3

// launch creates the stream and the set, starts members, and publishes.
func launch(t *testing.T, url string, replicas int, retention jetstream.RetentionPolicy, members int, ttl time.Duration) *fleet {
	t.Helper()
	nc := natstest.Connect(t, url)
	f := &fleet{t: t, js: natstest.JetStream(t, nc), url: url, replicas: replicas, procs: map[string]*proc{}, cfg: partition.Config{
		Name: "set", Partitions: *partitions, Subject: "orders.{partition}.*", TTL: ttl, AckWait: 30 * time.Second,
	}, success: map[string]bool{}, ahead: make(chan struct{}, aheadPerPartition**partitions)}
	create(t, f.js, *partitions, replicas, retention)
	var err error
	f.set, err = partition.Open(t.Context(), f.js, "ORDERS", f.cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, p := range f.procs {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	for range members {
		f.start()
	}
	keys := max(1, *faultMessages/40)
	go func() {
		for n := range *faultMessages {
			subject, number := fmt.Sprintf("orders.k%d", n%keys), n/keys
			select {
			case f.ahead <- struct{}{}:
			case <-t.Context().Done():
				return
			}
			for t.Context().Err() == nil {
				if _, err := f.js.Publish(t.Context(), subject, fmt.Append(nil, number), jetstream.WithMsgID(fmt.Sprint(n))); err == nil {
					break
				}
			}
		}
	}()
	return f
}

// finish waits until all messages have been handled, ends the members, and judges.
func (f *fleet) finish() verdict {
	f.more(*faultMessages)
	for len(f.procs) > 0 {
		f.end(f.any(), syscall.SIGTERM)
	}
	v := judge(f.events, f.stops)
	f.t.Logf("%d messages, %d attempts, %d repeated, %d assignments, %d faults", v.handled, v.attempts, v.repeated, v.assigned, len(v.faults))
	for _, fault := range v.faults[:min(10, len(v.faults))] {
		f.t.Error(fault)
	}
	require.Equal(f.t, *faultMessages, v.handled)
	f.eventually("members that were killed are gone", func() bool { return !errors.Is(f.set.Delete(f.t.Context()), partition.ErrHasMembers) })
	_, err := partition.Load(f.t.Context(), f.js, f.cfg.Name)
	require.ErrorIs(f.t, err, jetstream.ErrBucketNotFound)
	return v
}

// Members that join and leave pass partitions on in order, and nothing is handled twice.
func TestHandOversRepeatNothing(t *testing.T) {
	f := launch(t, servertest.RunServer(t).URL(), 1, jetstream.LimitsPolicy, 1, 30*time.Second) // no lease ends on a busy machine
	for n := range 6 {
		f.more(*faultMessages / 10)
		if n%2 == 1 {
			f.end(f.any(), syscall.SIGTERM)
		} else {
			f.start()
			f.start()
		}
	}
	require.Zero(t, f.finish().repeated)
}

// Members are killed, stopped for longer than the TTL, and join and leave. The order of each key holds, and nothing is lost.
func TestMembersCrash(t *testing.T) {
	for _, retention := range []jetstream.RetentionPolicy{jetstream.LimitsPolicy, jetstream.WorkQueuePolicy} {
		t.Run(retention.String(), func(t *testing.T) {
			crash(launch(t, servertest.RunServer(t).URL(), 1, retention, 5, time.Second), nil)
		})
	}
}

// The links of members are cut, swallow all for longer than the TTL, and become slow. The order of each key holds, and nothing is lost.
func TestLinksFail(t *testing.T) {
	f := launch(t, servertest.RunServer(t).URL(), 1, jetstream.LimitsPolicy, 4, time.Second)
	for n := range *faultCount {
		f.more(*faultMessages / (*faultCount + 5))
		switch name := f.any(); n % 3 {
		case 0:
			f.procs[name].proxy.Cut()
		case 1:
			f.cutOff(name)
		case 2:
			f.procs[name].proxy.Delay(50 * time.Millisecond)
			f.more(50)
			f.procs[name].proxy.Delay(0)
		}
	}
	f.finish()
}

// Members crash on three servers, of which one at a time stops and comes back.
func TestMembersCrashOnACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly runs it, without -short")
	}
	c := servertest.RunCluster(t)
	f := launch(t, c.URLs(), 3, jetstream.LimitsPolicy, 5, time.Second)
	crash(f, func(n int) {
		server := n / 4 % len(c.Servers)
		c.StopServer(server)
		f.more(50)
		c.StartServer(t, server)
	})
}

func crash(f *fleet, fault func(n int)) {
	for n := range *faultCount {
		f.more(*faultMessages / (*faultCount + 5))
		switch {
		case fault != nil && n%4 == 3:
			fault(n)
		case n%8 == 7:
			f.cutOff(f.any())
		case n%4 == 0 || n%4 == 3:
			f.end(f.any(), syscall.SIGKILL)
			f.start()
		case n%4 == 1:
			f.freeze(f.any())
		case n%4 == 2:
			f.end(f.any(), syscall.SIGTERM)
			f.start()
		}
	}
	f.finish()
}

// The server restarts, again and again, and no member stops. Each partition has one owner at a time, and messages go on. In the seconds
// after a restart, a member that leaves passes its partitions on at once, and those of one that is killed have another owner after the
// TTL.
func TestServerRestarts(t *testing.T) {
	s := servertest.RunServer(t)
	f := launch(t, s.URL(), 1, jetstream.LimitsPolicy, 6, time.Second)
	restarts(f, 3, func(int) { s.Restart() })
}

// One of three servers is stopped and comes back, and no member stops.
func TestOneOfThreeServersRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly runs it, without -short")
	}
	c := servertest.RunCluster(t)
	f := launch(t, c.URLs(), 3, jetstream.LimitsPolicy, 4, time.Second)
	restarts(f, 2, func(n int) {
		c.StopServer(n % 3)
		f.more(20)
		c.StartServer(t, n%3)
	})
}

func restarts(f *fleet, rounds int, restart func(n int)) {
	step := *faultMessages / (3*rounds + 2)
	for n := range rounds {
		f.more(step)
		restart(n)
		f.owned("after a restart")
		f.end(f.any(), syscall.SIGTERM)
		f.owned("after a leave")
		f.start()
		f.more(step)
		f.end(f.any(), syscall.SIGKILL)
		f.owned("after a kill, with a TTL of " + f.cfg.TTL.String())
		f.start()
	}
	f.finish()
}

// owned waits until each partition has an owner that is alive, and logs for how long that was.
func (f *fleet) owned(when string) {
	f.t.Helper()
	begin := time.Now()
	f.eventually("all partitions have an owner "+when, func() bool {
		all, err := f.set.Status(f.t.Context())
		return err == nil && !slices.ContainsFunc(all, func(p partition.Partition) bool { return f.procs[p.Member] == nil })
	})
	f.t.Logf("%s: all partitions have an owner after %v", when, time.Since(begin).Round(time.Millisecond))
}
