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

// TestPartition shows, watches, resizes and deletes a set, and is refused while the set has a member or a message.
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
	refused(cli.ExitUsage, `PARTITIONS "many" is not a number`, "resize", "billing", "many")
	refused(cli.ExitUsage, "Partitions 2000 is not in 1..1024", "resize", "billing", "2000")
	refused(cli.ExitError, `set "other"`, "resize", "other", "8")
	require.Eventually(t, func() bool {
		return strings.Contains(f.run(t, "partition", "ls", "billing", "--json").out, `"pending":1`)
	}, time.Minute, 10*time.Millisecond)
	refused(cli.ExitError, "the set is not empty", "resize", "billing", "8")

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
	refused(cli.ExitError, `the set has members: ["m1"]; stop them first`, "resize", "billing", "8")
	refused(cli.ExitError, `the set has members: ["m1"]; stop them first`, "rm", "billing")
	leave()
	close(handle)
	require.NoError(t, <-consumed)
	require.Eventually(t, func() bool { return strings.Count(out.String(), `"partition":`) == 8 }, time.Minute, 10*time.Millisecond,
		"each lost its owner")
	require.Equal(t, cli.ExitDone, stop())

	var r result
	require.Eventually(t, func() bool { // the server counts an acknowledgement a moment later
		r = f.run(t, "partition", "resize", "billing", "8", "--json")
		return r.code == cli.ExitDone
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, "{\"before\":4,\"partitions\":8,\"set\":\"billing\"}\n", r.out)
	require.Equal(t, 8, strings.Count(f.run(t, "partition", "ls", "billing", "--json").out, `"partition":`))
	stream, err := js.Stream(t.Context(), "ORDERS")
	require.NoError(t, err)
	require.Contains(t, stream.CachedInfo().Config.SubjectTransform.Destination, "partition(8,1)")
	r = f.run(t, "partition", "resize", "billing", "2")
	require.Equal(t, "set billing has 2 partitions, and had 8\n", r.out, r.err)
	r = f.run(t, "partition", "rm", "billing")
	require.Equal(t, "deleted set billing\n", r.out, r.err)
	refused(cli.ExitError, fmt.Sprintf("set %q", "billing"), "ls", "billing")
}
