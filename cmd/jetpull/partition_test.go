package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/partition"
	"github.com/jetpull/jetpull/test/servertest"
)

// TestPartition shows, watches and deletes a set, which is refused while the set has a member.
func TestPartition(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	js := natstest.JetStream(t, srv.Connect(t))
	f := fixture{url: srv.URL()}
	transform := partition.Transform(4, "orders.*")
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}, SubjectTransform: &transform})
	require.NoError(t, err)
	set, err := partition.Open(t.Context(), js, "ORDERS", partition.Config{Name: "billing", Partitions: 4, Subject: "orders.{partition}.*"})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "orders.a", nil)
	require.NoError(t, err)
	refused := func(code int, text string, args ...string) {
		t.Helper()
		r := f.run(t, append([]string{"partition"}, args...)...)
		require.Equal(t, code, r.code, r.err)
		require.Contains(t, r.err, text)
	}
	refused(cli.ExitError, `set "other"`, "ls", "other")
	require.Eventually(t, func() bool {
		return strings.Contains(f.run(t, "partition", "ls", "billing", "--json").out, `"pending":1`)
	}, time.Minute, 10*time.Millisecond)

	handling, handle, consumed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		consumed <- set.Consume(ctx, func(context.Context, *jetpull.Msg) error {
			close(handling)
			<-handle
			return nil
		}, partition.Member("m1"))
	}()
	<-handling
	out, _, stop := f.start(t, "partition", "watch", "billing", "--interval", "100ms", "--json")
	require.Eventually(t, func() bool { return strings.Count(out.String(), `"member":"m1"`) == 4 }, time.Minute, 10*time.Millisecond)
	require.Contains(t, f.run(t, "partition", "ls", "billing").out, "m1")
	refused(cli.ExitError, `the set has members: ["m1"]; stop them first`, "rm", "billing")
	leave()
	close(handle)
	require.NoError(t, <-consumed)
	require.Eventually(t, func() bool { return strings.Count(out.String(), `"partition":`) == 8 }, time.Minute, 10*time.Millisecond,
		"each lost its owner")
	require.Equal(t, cli.ExitDone, stop())

	r := f.run(t, "partition", "rm", "billing")
	require.Equal(t, `{"deleted":"billing"}`+"\n", r.out, r.err)
	refused(cli.ExitError, fmt.Sprintf("set %q", "billing"), "ls", "billing")
}
