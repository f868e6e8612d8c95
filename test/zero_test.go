package test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/deadletters"
	"github.com/jetpull/jetpull/inbox"
	"github.com/jetpull/jetpull/jetpulltest"
	"github.com/jetpull/jetpull/limit"
	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/partition"
)

// functions are the exported functions of the packages, except for options, by their names.
var functions = map[string]map[string]any{
	module: {
		"Advisories": jetpull.Advisories, "ConfirmAcks": jetpull.ConfirmAcks, "Retry": jetpull.Retry, "Subscribe": jetpull.Subscribe,
		"SubscribeConsumer": jetpull.SubscribeConsumer, "Terminate": jetpull.Terminate, "Unpin": jetpull.Unpin, "HandleJSON": jetpull.HandleJSON[int],
		"AwaitConsumer": jetpull.AwaitConsumer, "Concurrency": jetpull.Concurrency, "DeadLetter": jetpull.DeadLetter,
		"DrainBuffered": jetpull.DrainBuffered,
		"DrainTimeout":  jetpull.DrainTimeout, "FillBatch": jetpull.FillBatch, "Group": jetpull.Group, "HandlerTimeout": jetpull.HandlerTimeout,
		"Heartbeat": jetpull.Heartbeat, "KeepAlive": jetpull.KeepAlive, "Logger": jetpull.Logger, "ManualAck": jetpull.ManualAck,
		"MaxAttempts": jetpull.MaxAttempts, "MaxCrashes": jetpull.MaxCrashes, "Limited": jetpull.Limited, "ExpiresAt": jetpull.ExpiresAt, "Named": jetpull.Named,
		"MaxBytes": jetpull.MaxBytes, "MaxWait": jetpull.MaxWait, "MinAckPending": jetpull.MinAckPending,
		"MinPending": jetpull.MinPending, "NoWait": jetpull.NoWait, "OnError": jetpull.OnError, "OnEvent": jetpull.OnEvent, "OnPin": jetpull.OnPin,
		"OnStart": jetpull.OnStart, "OnUnpin": jetpull.OnUnpin, "OrderedBy": jetpull.OrderedBy, "Prefetch": jetpull.Prefetch,
		"PrefetchBytes": jetpull.PrefetchBytes, "Priority": jetpull.Priority, "RetryDelays": jetpull.RetryDelays, "StopAfter": jetpull.StopAfter,
		"Use": jetpull.Use,
	},
	module + "/partition": {
		"Of": partition.Of, "Transform": partition.Transform, "Load": partition.Load, "Open": partition.Open,
		"Member": partition.Member, "Logger": partition.Logger, "OnAssign": partition.OnAssign, "OnRevoke": partition.OnRevoke, "With": partition.With,
	},
	module + "/deadletters": {
		"Capture": deadletters.Capture, "Keep": deadletters.Keep,
		"Subjects": deadletters.Subjects,
	},
	module + "/limit":     {"Open": limit.Open},
	module + "/inbox":     {"Handler": inbox.Handler, "BatchHandler": inbox.BatchHandler, "Keep": inbox.Keep, "Logger": inbox.Logger, "Migrate": inbox.Migrate},
	module + "/natsembed": {"Connect": natsembed.Connect, "Start": natsembed.Start, "ParseSync": natsembed.ParseSync, "SyncEvery": natsembed.SyncEvery},
	module + "/jetpulltest": {
		"NewMsg": jetpulltest.NewMsg, "Handle": jetpulltest.Handle, "OutcomeOf": jetpulltest.OutcomeOf, "NewRecorder": jetpulltest.NewRecorder,
		"Delivered": jetpulltest.Delivered, "Header": jetpulltest.Header, "Pending": jetpulltest.Pending, "Sequence": jetpulltest.Sequence,
		"Stored": jetpulltest.Stored, "Stream": jetpulltest.Stream,
	},
}

// documented are the calls whose documentation says that they panic.
var documented = []string{"jetpulltest: OutcomeOf was given a message that NewMsg has not made"}

// TestZeroValuesDoNotPanic calls every exported function with zero values, and every method on the zero value of its type, on a
// Subscription, a message and a server that are closed, and with options that are zero or nil.
func TestZeroValuesDoNotPanic(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	kv, err := r.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "limits"})
	require.NoError(t, err)
	methods := map[string]bool{} // the types that have some
	for path, all := range functions {
		listed := 0
		for line := range strings.Lines(string(goDoc(t, path))) {
			if words := strings.Fields(line); strings.HasPrefix(line, "func (") {
				methods[path[strings.LastIndexByte(path, '/')+1:]+"."+strings.Trim(words[2], "*)")] = true
			}
			if name, ok := strings.CutPrefix(line, "func "); ok && name[0] != '(' {
				name = name[:strings.IndexAny(name, "([")]
				require.Contains(t, all, name, "a function of %s that this table does not have", path)
				listed++
			}
		}
		require.Len(t, all, listed)
		for name, f := range all {
			callAll(t, path+" "+name, reflect.ValueOf(f), r.js, kv)
		}
	}
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	r.publish(t, 1)
	m := next(t, sub)
	var none context.Context
	_, err = limit.Open(none, kv, "calls", limit.Config{Concurrent: 1})
	require.ErrorContains(t, err, "context is nil")
	limiter, err := limit.Open(t.Context(), kv, "calls", limit.Config{Concurrent: 1})
	require.NoError(t, err)
	require.NoError(t, limiter.Close(t.Context()))
	require.NoError(t, sub.Close(t.Context()))
	server, err := natsembed.Start(t.Context(), natsembed.Options{})
	require.NoError(t, err)
	url := server.URL()
	server.Stop()
	require.Equal(t, url, server.URL(), "after Stop")
	for _, receiver := range []any{
		new(jetpull.Msg), new(jetpull.Subscription), new(jetpull.StatusError), &jetpull.StatusError{Code: 503}, new(jetpull.OptionError),
		new(jetpull.RetryError), new(jetpull.TerminateError), jetpull.BatchError(nil),
		jetpull.BatchError{nil: nil},
		new(partition.Set), new(limit.Limiter), (*limit.Limiter)(nil), new(limit.Config), limiter, new(natsembed.Server),
		new(jetpulltest.Recorder), jetpulltest.NewRecorder(nil), jetpulltest.NewMsg("", nil), m, sub, server,
	} {
		v := reflect.ValueOf(receiver)
		delete(methods, strings.TrimPrefix(v.Type().String(), "*"))
		for i := range v.NumMethod() {
			if _, opens := receiver.(*natsembed.Server); opens && v.Type().Method(i).Name == "Unwrap" {
				continue
			}
			callAll(t, v.Type().String()+" "+v.Type().Method(i).Name, v.Method(i))
		}
	}
	require.Empty(t, methods, "types with methods that this table does not have")
}

// callAll calls f with zero values, and with a context, a handler, a zero option and what is on a server in the places of some.
func callAll(t *testing.T, name string, f reflect.Value, servers ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, given := range [][]any{
		nil,
		servers,
		{ctx},
		append([]any{ctx}, servers...),
		{ctx, jetpull.Handler(nothing)},
		{ctx, jetpull.Handler(nothing), jetpull.MaxWait(time.Millisecond)},
		{partition.Option(nil), jetpulltest.Option(nil)},
	} {
		var args []reflect.Value
		for i := range f.Type().NumIn() {
			in := f.Type().In(i)
			variadic := f.Type().IsVariadic() && i == f.Type().NumIn()-1
			if variadic {
				in = in.Elem()
			}
			arg, found := reflect.Zero(in), false
			for _, g := range given {
				if !found && reflect.TypeOf(g).AssignableTo(in) && in.NumMethod() != 1 {
					arg, found = reflect.ValueOf(g), true
				}
			}
			if !variadic || found {
				args = append(args, arg)
			}
		}
		func() {
			defer func() {
				if v := recover(); v != nil {
					require.Contains(t, documented, v, "%s panics with %v: %v", name, given, v)
				}
			}()
			for _, out := range f.Call(args) {
				use(out.Interface())
			}
		}()
	}
}

func nothing(context.Context, *jetpull.Msg) error { return nil }

// use goes through the results that only then do something.
func use(result any) {
	switch r := result.(type) {
	case iter.Seq2[*jetpull.Msg, error]:
		for range r {
			continue
		}
	case iter.Seq2[jetpull.PinAdvisory, error]:
		for range r {
			continue
		}
	case *nats.Conn:
		if r != nil {
			r.Close()
		}
	case *natsembed.Server:
		if r != nil {
			r.Stop()
		}
	case func():
		if r != nil {
			r()
		}
	case error:
		_ = fmt.Sprint(r, errors.Is(r, jetpull.ErrInvalidOption))
	}
}
