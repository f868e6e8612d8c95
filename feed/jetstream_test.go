package feed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/jetpulltest"
	"github.com/jetpull/jetpull/test/servertest"
)

// farm is a NATS server with the stream of a JetStream processor.
type farm struct {
	server *servertest.Server
	js     jetstream.JetStream
}

func newFarm(t *testing.T) *farm {
	t.Helper()
	server := servertest.RunServer(t)
	f := &farm{server, server.JetStream(t, server.Connect(t))}
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "WORK", Subjects: []string{"work", "work.done.>"}, Retention: jetstream.WorkQueuePolicy, AllowMsgTTL: true,
	})
	require.NoError(t, err)
	_, err = f.js.CreateConsumer(t.Context(), "WORK", jetstream.ConsumerConfig{Durable: "workers", FilterSubject: "work", AckWait: 2 * time.Second})
	require.NoError(t, err)
	return f
}

func (f *farm) processor(t *testing.T, opts ...JetStreamOption) *JetStreamProcessor {
	t.Helper()
	p, err := NewJetStreamProcessor(t.Context(), f.server.JetStream(t, f.server.Connect(t)), "work", opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// work runs a worker, with a connection of its own, until the test ends or stop is called.
func (f *farm) work(t *testing.T, p ProcessorFunc, opts ...jetpull.ConsumeOption) (stop func()) {
	t.Helper()
	js := f.server.JetStream(t, f.server.Connect(t))
	h, err := JetStreamHandler(js, p)
	require.NoError(t, err)
	sub, err := jetpull.Subscribe(t.Context(), js, "WORK", "workers")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	opts = append([]jetpull.ConsumeOption{jetpull.Concurrency(16), jetpull.DrainTimeout(0)}, opts...)
	go func() { done <- sub.Consume(ctx, h, opts...) }()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
		_ = sub.Close(context.Background())
	})
	t.Cleanup(stop)
	return stop
}

func (f *farm) left(t *testing.T) uint64 {
	t.Helper()
	s, err := f.js.Stream(t.Context(), "WORK")
	require.NoError(t, err)
	return s.CachedInfo().State.Msgs
}

// TestJetStreamProcessor has two workers do the items of two gates, with each way in which a step can end.
func TestJetStreamProcessor(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	s := openStore(t, backends[0].fresh(t))
	items := []Item{
		{ID: "raw", Data: []byte("\xff{")},
		{ID: "empty"},
		{ID: "moves", Data: []byte("1")},
		{ID: "retried"},
		{ID: "permanent"},
		{ID: "panics"},
	}
	for n := range 50 {
		items = append(items, Item{ID: "n" + strconv.Itoa(n), Data: []byte(strconv.Itoa(n))})
	}
	create(t, s, Partition{ID: "p é"}, items...)
	var calls [2]atomic.Int64
	for w := range calls {
		f.work(t, func(_ context.Context, it Item) (Response, error) {
			calls[w].Add(1)
			if it.Partition != "p é" || it.Status != Available || it.Attempt < 1 || len(it.IdempotencyKey()) != 32 {
				return Response{}, Permanent(fmt.Errorf("received %+v", it))
			}
			switch {
			case it.ID == "raw":
				return Response{Done: true, Data: append(it.Data, '\n')}, nil
			case it.ID == "empty":
				return Response{Done: true, Data: []byte{}}, nil
			case it.ID == "moves" && it.Gate == 0:
				gate := 2
				return Response{Gate: &gate, Data: []byte(`{ "step": 2 }`)}, nil
			case it.ID == "retried" && it.Attempt < 3:
				return Response{}, RetryAfter(time.Millisecond, errors.New("busy"))
			case it.ID == "permanent":
				return Response{}, Permanent(errors.New("never"))
			case it.ID == "panics":
				panic("boom")
			}
			return Response{Done: true}, nil
		})
	}
	watcher := startWatcher(t, s, f.processor(t), MaxRetries(3))
	awaitPartition(t, s, "p é", Failed)
	require.NoError(t, s.Skip(t.Context(), "p é", "permanent", "panics"))
	var all []Item
	eventually(t, "all are Complete", func() bool {
		var err error
		all, err = s.Items(t.Context(), Query{Partition: "p é", Status: Complete})
		return err == nil && len(all) == len(items)
	})
	require.NoError(t, watcher.stop(t))
	byID := map[string]Item{}
	for _, it := range all {
		byID[it.ID] = it
	}
	require.Equal(t, "\xff{\n", string(byID["raw"].Data))
	require.Empty(t, byID["empty"].Data)
	require.Equal(t, `{ "step": 2 }`, string(byID["moves"].Data), "as it was given")
	require.Equal(t, 2, byID["moves"].Gate)
	require.Equal(t, "7", string(byID["n7"].Data), "unchanged")
	require.Equal(t, []string{"busy", "busy"}, byID["retried"].Errors)
	require.Equal(t, []string{"never"}, byID["permanent"].Errors)
	require.Equal(t, 4, byID["panics"].Attempt)
	require.Contains(t, byID["panics"].Errors[3], "panic: boom")
	require.NotZero(t, calls[0].Load())
	require.NotZero(t, calls[1].Load(), "the work is shared")
	eventually(t, "nothing is left in the stream", func() bool { return f.left(t) == 0 })
}

// TestJetStreamReplyToALostWatcher: a watcher ends while a worker has its item. The next one's attempt reaches the
// workers, though item, step and attempt are the same, and the late reply to the first changes nothing.
func TestJetStreamReplyToALostWatcher(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	s := openStore(t, backends[0].fresh(t))
	create(t, s, Partition{ID: "p"}, Item{ID: "a"})
	keys, first, second := make(chan string, 2), make(chan string), make(chan string)
	var n atomic.Int64
	f.work(t, func(_ context.Context, it Item) (Response, error) {
		turn := n.Add(1)
		keys <- it.IdempotencyKey() + strconv.Itoa(it.Attempt)
		if turn == 1 {
			return Response{Done: true, Data: []byte(<-first)}, nil
		}
		return Response{Done: true, Data: []byte(<-second)}, nil
	})
	lost := f.processor(t)
	watcher := startWatcher(t, s, lost, DrainTimeout(0))
	key := <-keys
	_ = watcher.stop(t)
	watcher = startWatcher(t, s, f.processor(t))
	require.Equal(t, key, <-keys)
	first <- "late"
	eventually(t, "the late reply is taken from the stream", func() bool { return f.left(t) == 1 })
	it, err := s.Item(t.Context(), "p", "a")
	require.NoError(t, err)
	require.Equal(t, Available, it.Status)
	second <- "own"
	eventually(t, "the item is Complete", func() bool {
		it, err = s.Item(t.Context(), "p", "a")
		return err == nil && it.Status == Complete
	})
	require.Equal(t, "own", string(it.Data))
	require.Equal(t, 1, it.Attempt)
	require.NoError(t, watcher.stop(t))
	require.EqualValues(t, 2, n.Load())
}

// TestJetStreamWorkerDies: what a worker had when it ended is redelivered, which is no other attempt.
func TestJetStreamWorkerDies(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	s := openStore(t, backends[0].fresh(t))
	create(t, s, Partition{ID: "p", Sealed: true}, Item{ID: "a"}, Item{ID: "b"})
	begun := make(chan string, 2)
	stop := f.work(t, func(ctx context.Context, it Item) (Response, error) {
		begun <- it.ID
		<-ctx.Done()
		return Response{}, ctx.Err()
	})
	watcher := startWatcher(t, s, f.processor(t), AutoClose(), MaxRetries(0))
	<-begun
	<-begun
	f.work(t, func(_ context.Context, it Item) (Response, error) {
		if it.Attempt != 1 {
			return Response{}, fmt.Errorf("attempt %d", it.Attempt)
		}
		return done()
	})
	stop()
	awaitPartition(t, s, "p", Complete)
	require.NoError(t, watcher.stop(t))
}

// TestJetStreamDown restarts the server while items are published, processed and replied to. No attempt is lost or
// fails for it.
func TestJetStreamDown(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	s := openStore(t, backends[0].fresh(t))
	items := make([]Item, 300)
	create(t, s, Partition{ID: "p", Sealed: true}, items...)
	var processed atomic.Int64
	f.work(t, func(context.Context, Item) (Response, error) {
		processed.Add(1)
		return done()
	})
	var failed atomic.Int64
	watcher := startWatcher(t, s, f.processor(t), AutoClose(), Concurrency(20), MaxRetries(0), OnError(func(Item, error) { failed.Add(1) }))
	eventually(t, "some are processed", func() bool { return processed.Load() > 50 })
	f.server.Stop()
	f.server.Start()
	awaitPartition(t, s, "p", Complete)
	require.NoError(t, watcher.stop(t))
	require.Zero(t, failed.Load())
	t.Logf("%d items were processed %d times", len(items), processed.Load())
}

// TestJetStreamConsumerIsCreatedAgain deletes the consumer of the replies.
func TestJetStreamConsumerIsCreatedAgain(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	p := f.processor(t)
	begun, release := make(chan struct{}), make(chan struct{})
	f.work(t, func(context.Context, Item) (Response, error) {
		close(begun)
		<-release
		return done()
	})
	result := make(chan error, 1)
	go func() {
		_, err := p.Process(t.Context(), Item{ID: "a", Partition: "p", Attempt: 1})
		result <- err
	}()
	<-begun
	require.NoError(t, f.js.DeleteConsumer(t.Context(), "WORK", p.name))
	close(release)
	require.NoError(t, <-result)
}

func TestJetStreamTimeout(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	p := f.processor(t, ReplyTimeout(time.Second))
	_, err := p.Process(t.Context(), Item{ID: "a", Partition: "p", Attempt: 1})
	require.ErrorIs(t, err, errNoReply)
	p.calls.Range(func(call, _ any) bool {
		t.Errorf("call %v waits still", call)
		return true
	})
	eventually(t, "the stream drops what nobody waits for", func() bool { return f.left(t) == 0 })
	_, err = p.Process(t.Context(), Item{ID: "a", Partition: "p", Attempt: 1, Data: make([]byte, 2<<20)})
	require.ErrorContains(t, err, "maximum payload")
	_, permanent := errors.AsType[*permanentError](err)
	require.True(t, permanent)
	f.boundMessages(t, 10_000)
	_, err = p.Process(t.Context(), Item{ID: "a", Partition: "p", Attempt: 1, Data: make([]byte, 20_000)})
	require.ErrorIs(t, err, jetstream.ErrStreamMessageExceedsMaximum)
	_, permanent = errors.AsType[*permanentError](err)
	require.True(t, permanent)
	require.NoError(t, p.Close())
	_, err = p.Process(t.Context(), Item{ID: "a", Partition: "p", Attempt: 1})
	require.ErrorIs(t, err, errClosed)
}

// boundMessages bounds the size of messages in the stream, below the server's.
func (f *farm) boundMessages(t *testing.T, size int32) {
	t.Helper()
	s, err := f.js.Stream(t.Context(), "WORK")
	require.NoError(t, err)
	config := s.CachedInfo().Config
	config.MaxMsgSize = size
	_, err = f.js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
}

// TestJetStreamHandler terminates what is no item, and reports a response that is too large.
func TestJetStreamHandler(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	p := f.processor(t)
	f.work(t, func(_ context.Context, it Item) (Response, error) {
		if it.ID == "small" { // in base64, it is larger than the stream allows and smaller than the server does
			return Response{Done: true, Data: make([]byte, 760_000)}, nil
		}
		return Response{Done: true, Data: make([]byte, 2<<20)}, nil
	})
	_, err := f.js.Publish(t.Context(), "work", []byte("no item"))
	require.NoError(t, err)
	_, err = p.Process(t.Context(), Item{ID: "a", Partition: "p", Attempt: 1})
	require.ErrorContains(t, err, "the response is too large")
	f.boundMessages(t, 1_000_000)
	_, err = p.Process(t.Context(), Item{ID: "small", Partition: "p", Attempt: 1})
	require.ErrorContains(t, err, "the response is too large")
	eventually(t, "both messages are gone", func() bool { return f.left(t) == 0 })
}

// TestJetStreamReplySubject: whoever may publish items chooses the header of the reply. The worker publishes to the replies of the item's
// own subject and nowhere else, and does not process an item that asks for another one.
func TestJetStreamReplySubject(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	nc := f.server.Connect(t)
	all, err := nc.SubscribeSync(">")
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	h, err := JetStreamHandler(f.js, ProcessorFunc(func(context.Context, Item) (Response, error) {
		t.Error("the item is processed")
		return done()
	}))
	require.NoError(t, err)
	for _, reply := range []string{
		"$KV.broker_registry.c.ch1", "$JS.API.STREAM.PURGE.WORK", "_INBOX.abc.def", "work", "work.done", "work.done.", "work.done.id", "work.done.id.",
		"work.done..call", "work.done.id.call.more", "work.done.*.call", "work.done.id.>", "work.done.id.a b", "workdone.id.call", "other.done.id.call",
		"Work.done.id.call", "work.done.id.call\n", "work.done.id." + strings.Repeat("c", 5000),
	} {
		m := jetpulltest.NewMsg("work", nil, jetpulltest.Header(HeaderReply, reply), jetpulltest.Header(HeaderItem, "a"),
			jetpulltest.Header(HeaderPartition, "p"),
			jetpulltest.Header(HeaderGate, "0"), jetpulltest.Header(HeaderAttempt, "1"), jetpulltest.Header(HeaderIdempotencyKey, "k"))
		got := jetpulltest.Handle(t.Context(), h, m)
		require.Equal(t, jetpulltest.Term, got.Verb, "%q", reply)
		require.ErrorContains(t, got.Err, HeaderReply, "%q", reply)
	}
	require.NoError(t, nc.Publish("end", nil))
	last, err := all.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "end", last.Subject, "nothing was published")
}

// silent is a JetStream that confirms nothing.
type silent struct{ jetstream.JetStream }

func (silent) PublishMsg(ctx context.Context, _ *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestJetStreamReplyUnconfirmed: a reply that nobody confirms, as where the worker may not publish it, frees the worker soon. While NATS is
// down it waits longer.
func TestJetStreamReplyUnconfirmed(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	down := f.server.Connect(t)
	down.Close()
	for name, tc := range map[string]struct {
		js    jetstream.JetStream
		after time.Duration
	}{"connected": {f.js, replyUnconfirmed}, "down": {f.server.JetStream(t, down), replyWait}} {
		synctest.Test(t, func(t *testing.T) {
			h, err := JetStreamHandler(silent{tc.js}, ProcessorFunc(func(context.Context, Item) (Response, error) { return done() }))
			require.NoError(t, err)
			begun := time.Now()
			got := jetpulltest.Handle(t.Context(), h, jetpulltest.NewMsg("work", nil,
				jetpulltest.Header(HeaderReply, "work.done.id.call"), jetpulltest.Header(HeaderItem, "a"), jetpulltest.Header(HeaderPartition, "p"),
				jetpulltest.Header(HeaderGate, "0"), jetpulltest.Header(HeaderAttempt, "1"), jetpulltest.Header(HeaderIdempotencyKey, "k")))
			require.Equal(t, jetpulltest.Nak, got.Verb, name)
			require.ErrorContains(t, got.Err, "work.done.id.call", name)
			require.GreaterOrEqual(t, time.Since(begun), tc.after, name)
			require.Less(t, time.Since(begun), tc.after+10*time.Second, name)
		})
	}
}

func TestJetStreamProcessorRefuses(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	for name, try := range map[string]func() (*JetStreamProcessor, error){
		"js":      func() (*JetStreamProcessor, error) { return NewJetStreamProcessor(t.Context(), nil, "work") },
		"subject": func() (*JetStreamProcessor, error) { return NewJetStreamProcessor(t.Context(), f.js, "work.*") },
		"no stream captures": func() (*JetStreamProcessor, error) {
			return NewJetStreamProcessor(t.Context(), f.js, "other")
		},
		"ReplyTimeout": func() (*JetStreamProcessor, error) {
			return NewJetStreamProcessor(t.Context(), f.js, "work", ReplyTimeout(time.Millisecond))
		},
	} {
		_, err := try()
		require.ErrorIs(t, err, ErrInvalid, name)
		require.ErrorContains(t, err, name)
	}
	_, err := JetStreamHandler(nil, ProcessorFunc(nil))
	require.ErrorIs(t, err, ErrInvalid)
	_, err = JetStreamHandler(f.js, nil)
	require.ErrorIs(t, err, ErrInvalid)
}

// TestJetStreamTraces: the worker's context is in the trace of the watcher's attempt.
func TestJetStreamTraces(t *testing.T) {
	t.Parallel()
	f := newFarm(t)
	p := f.processor(t)
	got := make(chan trace.SpanContext, 1)
	f.work(t, func(ctx context.Context, _ Item) (Response, error) {
		got <- trace.SpanContextFromContext(ctx)
		return done()
	})
	ctx, span := sdktrace.NewTracerProvider().Tracer("test").Start(t.Context(), "attempt")
	defer span.End()
	_, err := p.Process(ctx, Item{ID: "a", Partition: "p", Attempt: 1})
	require.NoError(t, err)
	worker := <-got
	require.Equal(t, span.SpanContext().SpanID(), worker.SpanID())
	require.True(t, worker.IsRemote())
}
