//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/partition"
	"github.com/jetpull/jetpull/test/servertest"
)

// helpExample is an example of a help.
type helpExample struct {
	line  string
	swap  []string // pairs of a text and what is run in its place: the test has other ports and hosts, and a backlog for each consumer
	until string   // it goes on until it prints this, or a script that it runs does; empty: it ends with 0
	not   string   // why it is not run
}

// helpExamples are the examples of all helps, in an order in which each finds what it needs.
var helpExamples = []helpExample{
	{line: `jetpull server`, swap: []string{"server", "server --port 0"}, until: "nats://127.0.0.1:"},
	{line: `jetpull publish orders.new two --create ORDERS`},
	{line: `jetpull publish orders.new '{"id":{{.Count}}}' --count 1000`},
	{line: `jetpull publish orders.new --lines < orders.jsonl`},
	{line: `jetpull publish 'orders.{{.Count}}' x --size 1024 --create ORDERS --embedded ./data`},
	{line: `jetpull publish reports.due daily --cron '0 0 6 * * *' --schedule reports.daily --create REPORTS`},
	{line: `jetpull streams ls`},
	{line: `jetpull streams info ORDERS`},
	{line: `jetpull consumers ls ORDERS`},
	{line: `jetpull info ORDERS worker`},
	{line: `jetpull info ORDERS worker --watch`, until: "pending"},
	{line: `jetpull info ORDERS worker --watch --json > states.jsonl`, swap: []string{" > states.jsonl", ""}, until: `"pending":`},
	{line: `jetpull fetch ORDERS worker --count 10`},
	{line: `jetpull fetch ORDERS worker --settle nak --json | jq .data`, swap: []string{"jq .data", "grep data"}},
	{line: `jetpull consume ORDERS worker --concurrency 8 -- ./ship.sh`, swap: []string{"worker", "w1"}, until: "shipped"},
	{
		line: `jetpull consume ORDERS worker --worker -- node worker.js`,
		swap: []string{"ORDERS worker", "ORDERS w2", "node worker.js", "sh worker.sh"}, until: "worked",
	},
	{
		line: `jetpull consume ORDERS worker --max-crashes 3 --dead-letter dead.orders -- ./ship.sh`,
		swap: []string{"worker", "w5", "./ship.sh", "sh -c 'cat >/dev/null; echo limited >>said'"}, until: "limited",
	},
	{
		line: `jetpull consume ORDERS worker --named shipping -- ./ship.sh`,
		swap: []string{"worker", "w6", "./ship.sh", "sh -c 'cat >/dev/null; echo identified >>said'"}, until: "identified",
	},
	{line: `jetpull ps ORDERS worker`, swap: []string{"worker", "named"}},
	{line: `jetpull cancel ORDERS worker 4711`, swap: []string{"worker", "named", "4711", "1"}},
	{line: `jetpull consume ORDERS worker`, swap: []string{"worker", "w3"}, until: `orders.new: {"id":1`},
	{line: `jetpull consumers pause ORDERS worker --for 1h`},
	{line: `jetpull consumers pause ORDERS worker --until 2027-01-31T18:00:00Z`, swap: []string{"2027", "2999"}},
	{line: `jetpull consumers resume ORDERS worker`},
	{line: `jetpull consumers reset ORDERS worker`},
	{line: `jetpull consumers reset ORDERS worker --to 1200`, swap: []string{"1200", "800"}},
	{line: `jetpull consume ORDERS worker --idle 2s --json > backlog.jsonl`, swap: []string{"worker", "w4"}},
	{
		line: `jetpull consume ORDERS worker --create 'orders.>' --embedded ./data --embedded-port 4222`,
		swap: []string{"4222", "0"}, until: "orders.",
	},
	{line: `jetpull unpin ORDERS worker`, swap: []string{"worker", "pinned"}},
	{line: `jetpull unpin ORDERS worker primary`, swap: []string{"worker", "pinned"}},
	{line: `jetpull dlq ls DEAD --since 24h --reason 'timeout|refused'`},
	{line: `jetpull dlq show DEAD 7`},
	{line: `jetpull dlq requeue DEAD --subject 'orders.>' --dry-run`},
	{line: `jetpull dlq purge DEAD 7 8 9`},
	{line: `jetpull dlq capture DEAD --dead-letter dead.orders`, until: "added to stream DEAD"},
	{line: `jetpull dlq capture DEAD ORDERS --dead-letter dead.orders --idle 2s`},
	{line: `jetpull partition ls billing`},
	{line: `jetpull partition watch billing --json`, until: "{"},
	{line: `jetpull partition rm billing`},
	{line: `seq 500 | jetpull feed add resumes --seal`},
	{line: `jetpull feed --exec ./classify.sh --auto-close`, until: "classified"},
	{
		line: `jetpull feed --handler http://127.0.0.1:8080/item --auto-close`,
		swap: []string{"http://127.0.0.1:8080", "$RECEIVER"}, until: "received /item",
	},
	{line: `jetpull feed --db postgres://feed@127.0.0.1/feed --handler http://127.0.0.1:8080/item`, not: "it needs PostgreSQL"},
	{line: `jetpull console --embedded data`, swap: []string{"data", "data --listen 127.0.0.1:0"}, until: "http://127.0.0.1:"},
	{line: `jetpull console --nats nats://n1:4222 --relay http://relay:8080 --feed postgres://feed@db/feed`, not: "it needs other machines"},
	{line: `jetpull exporter`, swap: []string{"exporter", "exporter --listen 127.0.0.1:0"}, until: "listening on"},
	{
		line: `jetpull exporter --nats nats://n1:4222 --listen 0.0.0.0:9091 --exporter-token secret`,
		swap: []string{"--nats nats://n1:4222 ", "", "0.0.0.0:9091", "127.0.0.1:0"}, until: "listening on",
	},
	{line: `jetpull broker`, swap: []string{"broker", "broker --listen 127.0.0.1:0"}, until: "listening on"},
	{
		line: `jetpull broker --config broker.cfg --listen 0.0.0.0:8080 --admin-token "$TOKEN"`, swap: []string{"0.0.0.0:8080", "127.0.0.1:0"},
		until: "listening on",
	},
	{line: `jetpull broker --nats nats://n1:4222,nats://n2:4222 --replicas 3`, not: "it needs a cluster"},
	{line: `jetpull broker broadcast orders shop '{"id": 12}' --id order-12 --event-type order.paid`},
	{line: `jetpull broker broadcast orders shop -H 'Content-Type: image/png' <picture.png`},
	{line: `jetpull broker claim orders warehouse --count 10 --wait 20s`, swap: []string{"10", "1"}},
	{line: `jetpull broker claim orders warehouse --settle none --json | jq -r .Message.Payload`, swap: []string{"jq -r .Message.Payload", "grep Payload"}},
	{line: `jetpull relay`, swap: []string{"relay", "relay --listen 127.0.0.1:0"}, until: "listening on"},
	{
		line: `jetpull relay --config relay.cfg --listen 0.0.0.0:8080 --admin-token "$TOKEN"`, swap: []string{"0.0.0.0:8080", "127.0.0.1:0"},
		until: "listening on",
	},
	{line: `jetpull relay --nats nats://n1:4222,nats://n2:4222 --replicas 3`, not: "it needs a cluster"},
	{line: `jetpull relay receivers put ci --file ci.json --paused`},
	{
		line: `jetpull relay receivers put ci --post-endpoint http://127.0.0.1:9090/hook --rate-limit 200`,
		swap: []string{"http://127.0.0.1:9090/hook", "$RECEIVER --paused=false"},
	},
	{line: `jetpull relay send --source repo --id push-1 --receiver ci --wait 30s '{"branch": "main"}'`},
	{line: `jetpull relay senders put shop --file shop.json --callback-endpoint http://127.0.0.1:9091/done`},
	{line: `echo '{"token": "'"$TOKEN"'"}' | jetpull relay senders put shop --file - --sources shop/`},
}

// Each example of a help runs as it is written there, and there is no other.
func TestExamplesOfHelps(t *testing.T) {
	t.Parallel()
	needShell(t)
	var shown, run []string
	var collect func(cmd *cobra.Command)
	collect = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			shown = append(shown, strings.TrimSpace(line))
		}
		for _, sub := range cmd.Commands() {
			collect(sub)
		}
	}
	collect(newRootCommand())
	for _, e := range helpExamples {
		run = append(run, e.line)
	}
	require.ElementsMatch(t, shown, run)

	r := examplesReader(t)
	for _, e := range helpExamples {
		if e.not != "" {
			t.Logf("not run, because %s: %s", e.not, e.line)
			continue
		}
		line := strings.NewReplacer(e.swap...).Replace(e.line)
		require.Equal(t, e.swap == nil, line == e.line)
		if e.until == "" {
			r.do(t, line)
			continue
		}
		var out buffer
		cmd := r.command("exec " + line)
		cmd.Stdout, cmd.Stderr = &out, &out
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		require.Eventually(t, func() bool {
			said, _ := os.ReadFile(filepath.Join(r.dir, "said"))
			return strings.Contains(out.String()+string(said), e.until)
		}, 2*time.Minute, 20*time.Millisecond, "%s\n%s", line, &out)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait(), "%s\n%s", line, &out)
	}
}

// examplesReader is somebody who types the examples, with the scripts, servers, streams and messages that they work on.
func examplesReader(t *testing.T) *feedReader {
	t.Helper()
	srv := servertest.RunServer(t)
	js := natstest.JetStream(t, srv.Connect(t))
	natstest.Stream(t, js, "ORDERS", "orders.>")
	natstest.Stream(t, js, "DEAD", "dead.>")
	for _, name := range []string{"worker", "w1", "w2", "w3", "w4", "w5", "w6", "named"} {
		natstest.Consumer(t, js, "ORDERS", jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy})
	}
	natstest.Consumer(t, js, "ORDERS", jetstream.ConsumerConfig{
		Durable: "pinned", AckPolicy: jetstream.AckExplicitPolicy, PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"primary"},
	})
	named, err := jetpull.Subscribe(t.Context(), js, "ORDERS", "named")
	require.NoError(t, err)
	go func() {
		_ = named.Consume(t.Context(), func(ctx context.Context, _ *jetpull.Msg) error {
			<-ctx.Done()
			return ctx.Err()
		}, jetpull.Named("shipping"))
	}()
	for range 9 {
		_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "dead.a", Header: nats.Header{
			"Dead-Letter-Subject": {"orders.new"}, "Dead-Letter-Stream": {"ORDERS"}, "Dead-Letter-Reason": {"timeout"},
		}})
		require.NoError(t, err)
	}
	transform := partition.Transform(4, "bills.*")
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "BILLS", Subjects: []string{"bills.*"}, SubjectTransform: &transform})
	require.NoError(t, err)
	_, err = partition.Open(t.Context(), js, "BILLS", partition.Config{Name: "billing", Partitions: 4, Subject: "bills.{partition}.*"})
	require.NoError(t, err)

	r := newFeedReader(t, []string{"", ""})
	said, err := os.OpenFile(filepath.Join(r.dir, "said"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { _ = said.Close() })
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = fmt.Fprintln(said, "received", req.URL.Path)
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	t.Cleanup(receiver.Close)
	relay, stopRelay := listen(t, relaycmd.New())
	t.Cleanup(func() { require.NoError(t, stopRelay()) })
	broker, stopBroker := listen(t, brokercmd.New())
	t.Cleanup(func() { require.NoError(t, stopBroker()) })
	s := &shell{t: t, url: broker, command: "broker"}
	s.want(0, "channels", "put", "orders")
	s.want(0, "producers", "put", "shop")
	s.want(0, "consumers", "put", "orders", "warehouse", "--callback-url", receiver.URL, "--type", "pull")
	r.env = append(r.env, "NATS_URL="+srv.URL(), "RECEIVER="+receiver.URL, "TOKEN=sesame-sesame", remote.RelayURL+"="+relay, remote.BrokerURL+"="+broker)
	for name, text := range map[string]string{
		"ship.sh":      "#!/bin/sh\ncat >/dev/null\necho shipped >>said\n",
		"classify.sh":  "#!/bin/sh\ncat >/dev/null\necho classified >>said\n",
		"worker.sh":    shellWorker,
		"orders.jsonl": "{\"id\":1}\n{\"id\":2}\n",
		"picture.png":  "\x89PNG",
		"ci.json":      fmt.Sprintf(`{"post_endpoint":%q}`, receiver.URL),
		"shop.json":    `{"token":"of-the-shop","sources":["shop/"]}`,
		"broker.cfg":   "",
		"relay.cfg":    "",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o755))
	}
	return r
}
