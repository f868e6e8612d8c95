package test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/otelpull"
	"github.com/jetpull/jetpull/partition"
)

// classed is an error that says its class by itself.
type classed struct{}

func (classed) Error() string     { return "no order 7 of customer 12" }
func (classed) ErrorType() string { return "unknown_order" }

// TestErrorType sees that errors are distinguished by their causes, not by how the
// handler says what is to become of the message.
func TestErrorType(t *testing.T) {
	path := &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}
	for _, tt := range []struct {
		h    jetpull.Handler
		want string
	}{
		{func(context.Context, *jetpull.Msg) error { return path }, "*fs.PathError"},
		{func(context.Context, *jetpull.Msg) error { return fmt.Errorf("order: %w", path) }, "*fs.PathError"},
		{func(context.Context, *jetpull.Msg) error {
			return jetpull.Retry(time.Hour, fmt.Errorf("order: %w", path))
		}, "*fs.PathError"},
		{func(context.Context, *jetpull.Msg) error { return jetpull.Terminate("wrong", path) }, "*fs.PathError"},
		{func(context.Context, *jetpull.Msg) error { return errors.Join(nil, path, errors.New("and more")) }, "*fs.PathError"},
		{func(context.Context, *jetpull.Msg) error { return fmt.Errorf("%w, and %w", path, context.Canceled) }, "*fs.PathError"},
		{func(context.Context, *jetpull.Msg) error { return jetpull.Terminate("wrong", classed{}) }, "unknown_order"},
		{func(context.Context, *jetpull.Msg) error { return jetpull.Terminate("wrong", nil) }, "*jetpull.TerminateError"},
		{func(context.Context, *jetpull.Msg) error { return fmt.Errorf("%w %w", nil, nil) }, "*fmt.wrapErrors"},
		{func(context.Context, *jetpull.Msg) error { return errors.Join(fmt.Errorf("%w", nil), path) }, "*fmt.wrapError"},
		{func(context.Context, *jetpull.Msg) error { panic("boom") }, "panic"},
	} {
		s := newScene(t)
		s.handle(t, nil, tt.h)
		got := attribute.String("error.type", tt.want)
		require.Contains(t, s.spans.Ended()[0].Attributes(), got, "on the span")
		duration := s.collect(t)["messaging.process.duration"].(metricdata.Histogram[float64])
		require.Contains(t, duration.DataPoints[0].Attributes.ToSlice(), got, "on the metric")
	}
}

// TestNilOptionsAreRefused has options of nothing, which would panic with the first
// message.
func TestNilOptionsAreRefused(t *testing.T) {
	s := newScene(t)
	h := func(context.Context, *jetpull.Msg) error { return nil }
	for name, o := range map[string]otelpull.Option{
		"opts[1]":            nil,
		"WithTracerProvider": otelpull.WithTracerProvider(nil),
		"WithMeterProvider":  otelpull.WithMeterProvider(nil),
		"WithPropagator":     otelpull.WithPropagator(nil),
	} {
		fine := otelpull.WithMeterProvider(sdkmetric.NewMeterProvider())
		_, err := otelpull.Handler(h, fine, o)
		require.ErrorIs(t, err, jetpull.ErrInvalidOption)
		require.ErrorContains(t, err, name+": is nil; leave it out")
		_, err = otelpull.Observe(s.sub, nil, fine, o)
		require.ErrorIs(t, err, jetpull.ErrInvalidOption)
		require.ErrorContains(t, err, name+": is nil; leave it out")
	}
}

// TestConsumedAreThoseThatWereDelivered has a Consume read ahead and end: what it hands
// back was not delivered to the application.
func TestConsumedAreThoseThatWereDelivered(t *testing.T) {
	s := newScene(t)
	registration, err := otelpull.Observe(s.sub, nil, s.opts...)
	require.NoError(t, err)
	defer func() { require.NoError(t, registration.Unregister()) }()
	for range 10 {
		_, err := s.js.Publish(t.Context(), "orders.new", nil)
		require.NoError(t, err)
	}
	consumed := func() int64 {
		return sum(t, s.collect(t), "messaging.client.consumed.messages", attribute.String("messaging.system", "nats"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, s.sub.Consume(ctx, func(context.Context, *jetpull.Msg) error {
		require.Eventually(t, func() bool { return s.sub.Stats().Buffered == 9 }, 10*time.Second, time.Millisecond)
		require.EqualValues(t, 1, consumed(), "while nine wait for a handler")
		cancel()
		return nil
	}, jetpull.Prefetch(10)))
	require.EqualValues(t, 9, s.sub.Stats().HandedBack)
	require.EqualValues(t, 1, consumed(), "when nine have gone back")
}

// TestZeroValues passes zero values to all functions: each is refused, or observed without a panic.
func TestZeroValues(t *testing.T) {
	s := newScene(t)
	_, err := otelpull.Handler(nil)
	require.ErrorIs(t, err, jetpull.ErrInvalidOption)
	_, err = otelpull.Observe(nil, nil)
	require.ErrorIs(t, err, jetpull.ErrInvalidOption)
	_, err = otelpull.ObserveSet(nil, nil)
	require.ErrorIs(t, err, jetpull.ErrInvalidOption)
	use, err := otelpull.Middleware(s.opts...)
	require.NoError(t, err)
	require.Nil(t, use(nil), "Consume refuses it")
	require.NoError(t, use(func(context.Context, *jetpull.Msg) error { return nil })(t.Context(), new(jetpull.Msg)))
	_, err = otelpull.Observe(new(jetpull.Subscription), nil, append(s.opts, otelpull.WithBacklog(time.Hour))...)
	require.NoError(t, err)
	_, err = otelpull.ObserveSet(new(partition.Set), nil, s.opts...)
	require.NoError(t, err)
	s.collect(t)
}
