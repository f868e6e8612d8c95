package security

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/partition"
	"github.com/jetpull/jetpull/test/servertest"
)

// subjectRow is a row of the table in docs/listeners.md.
type subjectRow struct{ subjects, tests []string }

// code finds what is written as code in a cell.
var code = regexp.MustCompile("`([^`]+)`")

func subjectTable(t *testing.T) (rows []subjectRow) {
	t.Helper()
	page, err := os.ReadFile("../../docs/listeners.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(page), "| subject | used by | what is believed | test |\n")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		require.Len(t, cells, 6, line)
		names := func(cell string) (found []string) {
			for _, m := range code.FindAllStringSubmatch(cell, -1) {
				found = append(found, strings.Replace(m[1], "SET", "billing", 1))
			}
			return found
		}
		if row := (subjectRow{names(cells[1]), names(cells[4])}); !strings.HasPrefix(line, "| ---") {
			require.NotEmpty(t, row.tests, "%s has no test", line)
			rows = append(rows, row)
		}
	}
	require.NotEmpty(t, rows)
	return rows
}

// within reports whether a subject of the table includes another one, which may have wildcards.
func within(pattern, subject string) bool {
	prefix, open := strings.CutSuffix(pattern, ">")
	return pattern == subject || open && strings.HasPrefix(subject, prefix)
}

// block returns the configuration of nats-server on a page.
func block(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, lines, ok := strings.Cut(string(text), "```conf\n")
	require.True(t, ok, "%s has no configuration", page)
	lines, _, _ = strings.Cut(lines, "```")
	return lines
}

// spy hears all that is published in an account.
type spy struct {
	nc    *nats.Conn
	mu    sync.Mutex
	heard map[string]bool
}

func newSpy(t *testing.T, srv *servertest.Server, user string) *spy {
	t.Helper()
	nc, err := nats.Connect(srv.URL(), nats.UserInfo(user, user+"-secret"))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	s := &spy{nc: nc, heard: map[string]bool{}}
	_, err = nc.Subscribe(">", func(m *nats.Msg) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.heard[m.Subject] = true
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	return s
}

// subjects are those that were heard, and those that the account's streams store.
func (s *spy) subjects(t *testing.T) (all []string) {
	t.Helper()
	js, err := jetstream.New(s.nc)
	require.NoError(t, err)
	streams := js.ListStreams(t.Context())
	for info := range streams.Info() {
		all = append(all, info.Config.Subjects...)
	}
	if err := streams.Err(); err != nil {
		require.ErrorContains(t, err, "not enabled for account")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for subject := range s.heard {
		all = append(all, subject)
	}
	return all
}

// cluster is a broker and a relay on a server with the accounts of docs/listeners.md, with a spy in each account.
type cluster struct {
	broker, relay *system
	orders        string // the URL of the application's account
	spies         map[string]*spy
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	users := []string{"broker", "relay", "shop", "orders"}
	for _, user := range users {
		t.Setenv(strings.ToUpper(user)+"_PASSWORD", user+"-secret")
	}
	srv := servertest.RunServer(t, servertest.WithConfig(block(t, "../../docs/listeners.md")))
	at := func(user string) string {
		return strings.Replace(srv.URL(), "nats://", "nats://"+user+":"+user+"-secret@", 1)
	}
	c := &cluster{spies: map[string]*spy{}}
	for _, user := range users {
		c.spies[user] = newSpy(t, srv, user)
	}
	c.orders = at("orders")
	c.broker = start(t, "broker", append(manyLogins, "--nats", at("broker"))...)
	c.relay = start(t, "relay", append(manyLogins, "--nats", at("relay"))...)
	return c
}

// work has the systems use each of their subjects.
func (c *cluster) work(t *testing.T, receiver string) {
	t.Helper()
	b, r := c.broker, c.relay
	b.must(t, http.MethodPut, "/producer/shop", formType, "token=pt")
	b.must(t, http.MethodPut, "/channel/orders", formType, "token=ct")
	b.must(t, http.MethodPut, "/channel/orders/consumer/push", formType, url.Values{"token": {"kt"}, "callbackUrl": {receiver}}.Encode())
	tokens := http.Header{"X-Broker-Channel-Token": {"ct"}, "X-Broker-Producer-Id": {"shop"}, "X-Broker-Producer-Token": {"pt"}}
	require.Equal(t, http.StatusCreated, b.ask(t, http.MethodPost, "/channel/orders/broadcast", tokens, "x").status)
	tokens.Set("X-Broker-Scheduled-For", time.Now().Add(time.Hour).Format(time.RFC3339))
	a := b.ask(t, http.MethodPost, "/channel/orders/broadcast", tokens, "x")
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	tokens.Set("Authorization", "Bearer "+adminToken)
	a = b.ask(t, http.MethodDelete, a.header.Get("Location"), tokens, "") // which sends a notice
	require.Less(t, a.status, 300, string(a.body))

	r.must(t, http.MethodPut, "/v1/receivers/ci", "application/json", fmt.Sprintf(`{"post_endpoint":%q,"rate_limit":100}`, receiver))
	r.must(t, http.MethodPut, "/v1/senders/shop", "application/json", fmt.Sprintf(`{"callback_endpoint":%q,"token":"t","sources":["shop"]}`, receiver))
	for _, to := range []string{"ci", "nobody"} {
		m := nats.NewMsg("relay.from_sender.shop")
		m.Header.Set("Relay-Message-Id", to)
		m.Header.Set("Relay-Receiver", to)
		_, err := c.spies["shop"].nc.RequestMsg(m, time.Minute)
		require.NoError(t, err)
	}
	r.must(t, http.MethodPost, "/v1/messages?wait=30s", "application/json", `{"source_id":"shop","message_id":"m","receiver":"ci","payload":1}`)

	js, err := jetstream.New(c.spies["orders"].nc)
	require.NoError(t, err)
	transform := partition.Transform(4, "orders.*")
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}, SubjectTransform: &transform})
	require.NoError(t, err)
	set, err := partition.Open(t.Context(), js, "ORDERS", partition.Config{Name: "billing", Partitions: 4, Subject: "orders.{partition}.*"})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "orders.1", nil)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	require.NoError(t, set.Consume(ctx, func(context.Context, *jetpull.Msg) error { stop(); return nil }))

	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}})
	require.NoError(t, err)
	letter := nats.Header{jetpull.HeaderDeadSubject: {"orders.1"}, jetpull.HeaderDeadStream: {"ORDERS"}}
	_, err = js.PublishMsg(t.Context(), &nats.Msg{Subject: "dead.orders", Header: letter})
	require.NoError(t, err)
	c.feed(t, js)
	console, admin, _ := newConsole(t, "--nats", c.orders)
	for _, page := range []string{"/overview", "/consumers", "/messages?stream=ORDERS", "/deadletters?stream=DEAD", "/sets", "/set?name=billing"} {
		require.Equal(t, http.StatusOK, console.ask(t, http.MethodGet, page, admin, "").status, page)
	}
	for _, args := range [][]string{
		{"publish", "orders.2", "x"}, {"info", "ORDERS", "billing-0"}, {"partition", "ls", "billing"}, {"dlq", "ls", "DEAD"}, {"dlq", "requeue", "DEAD", "1"},
	} {
		out, err := call(t, append(args, "--nats", c.orders)...)
		require.NoError(t, err, "%v: %s", args, out)
	}
}

// feed runs jetpull feed in the application's account, with a worker. It looks into its database at the start, and then only when it is woken.
func (c *cluster) feed(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ITEMS", Subjects: []string{"items", "items.done.>"}})
	require.NoError(t, err)
	worked := make(chan string, 10)
	nc := js.Conn()
	worker, err := nc.Subscribe("items", func(m *nats.Msg) {
		_ = nc.Publish(m.Header.Get("Feed-Reply"), []byte(`{"done":true}`)) // the connection ends with the test
		worked <- string(m.Data)
	})
	require.NoError(t, err)
	program, err := command()
	require.NoError(t, err)
	db := "sqlite:" + filepath.Join(t.TempDir(), "feed.db")
	add := func(item string) {
		cmd := exec.CommandContext(t.Context(), program, "feed", "add", "p", "--db", db)
		cmd.Stdin = strings.NewReader(item)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	add("first")
	ctx, stop := context.WithCancel(context.Background())
	cmd := interruptible(ctx, t, "feed", "--db", db, "--nats", c.orders, "--publish", "items", "--poll-min", "1h", "--poll-max", "1h")
	var log bytes.Buffer
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // its error is that of the signal
		_ = worker.Unsubscribe()
	})
	require.Equal(t, "first", <-worked)
	add("second")
	require.Eventually(t, func() bool {
		require.NoError(t, nc.Publish("jetpull.feed.wakeup", []byte("p")))
		return len(worked) > 0
	}, time.Minute, 50*time.Millisecond, "it does not hear the wake-up")
	require.Equal(t, "second", <-worked)
}

// The only page with a configuration of nats-server is docs/listeners.md, which newCluster and TestPermissionsOfThePage run, apart from
// docs/permissions.md, whose blocks TestPermissionsOfParts runs.
func TestConfigurationsAreRun(t *testing.T) {
	run := []string{"docs/listeners.md", "docs/permissions.md"}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && path == "../../out" {
			return filepath.SkipDir // what make has built
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".md") {
			return err
		}
		text, err := os.ReadFile(path)
		if page := filepath.ToSlash(strings.TrimPrefix(path, "../../")); strings.Contains(string(text), "```conf\n") || strings.Contains(string(text), "accounts {") {
			require.Contains(t, run, page, "run its configuration in a test")
			require.True(t, page != run[0] || strings.Count(string(text), "```conf\n") == 1, page)
		}
		return err
	})
	require.NoError(t, err)
}

// Each subject that the systems use has a row in docs/listeners.md, and no client of another account can publish or hear there. The
// configuration of that page is what the server runs with.
func TestSubjectsOfTheSystems(t *testing.T) {
	rows := subjectTable(t)
	c := newCluster(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	c.work(t, receiver.URL)
	listed := func(subject string) bool {
		return slices.ContainsFunc(rows, func(r subjectRow) bool {
			return slices.ContainsFunc(r.subjects, func(pattern string) bool { return within(pattern, subject) })
		})
	}
	// The test waits for the subjects that a system must use: a system does not report that it has published all.
	for user, must := range map[string][]string{
		"broker": {"broker.t", "broker.x.deleted", "broker.x.dispatch", "broker.j.", "broker.m.", "broker.s.", "$KV.broker_registry."},
		"relay": {
			"relay.from_sender.", "relay.to_receiver.", "relay.to_sender.", "relay.failed_messages.", "relay.ended.", "$KV.relay_messages.",
			"$KV.relay_receiver_config.", "$KV.relay_state.window.",
		},
		"orders": {"$KV.partition-billing.", "items", "items.done.", "jetpull.feed.wakeup"},
	} {
		require.Eventually(t, func() bool {
			all := c.spies[user].subjects(t)
			return !slices.ContainsFunc(must, func(prefix string) bool {
				return !slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, prefix) && !strings.HasSuffix(s, ">") })
			})
		}, time.Minute, 50*time.Millisecond, "%s: %q are not all of %q", user, c.spies[user].subjects(t), must)
	}
	for user, s := range c.spies {
		for _, subject := range s.subjects(t) {
			own := user == "orders" && slices.ContainsFunc([]string{"orders.", "dead.", "items"}, func(prefix string) bool { return strings.HasPrefix(subject, prefix) })
			require.True(t, own || listed(subject), "%s: write on docs/listeners.md who may publish and hear %s, what is believed of it, and which test tries to forge it", user, subject)
			system := strings.HasPrefix(subject, "broker.") || strings.HasPrefix(subject, "relay.") || strings.HasPrefix(subject, "$KV.broker_") || strings.HasPrefix(subject, "$KV.relay_")
			require.False(t, system && !strings.HasPrefix(subject, user+".") && !strings.HasPrefix(subject, "$KV."+user+"_") && subject != "relay.from_sender.shop",
				"%s hears %s", user, subject)
		}
	}
	c.attack(t, rows)
	c.broker.alive(t)
	c.relay.alive(t)
}

// attack has each account publish on each subject of the table. The others hear nothing of it.
func (c *cluster) attack(t *testing.T, rows []subjectRow) {
	t.Helper()
	probes := 0
	for from, attacker := range c.spies {
		for _, row := range rows {
			for _, pattern := range row.subjects {
				subject := strings.Replace(pattern, ">", "forged-by-"+from, 1)
				for _, body := range []string{"", "{", `{"Token":"orders","Seqs":[1,2,3]}`, strings.Repeat("x", 100_000)} {
					m := &nats.Msg{Subject: subject, Reply: "$KV.relay_receiver_config.receiver.forged-by-" + from, Data: []byte(body)}
					require.NoError(t, attacker.nc.PublishMsg(m))
					probes++
				}
			}
		}
		require.NoError(t, attacker.nc.Flush())
	}
	streams := map[string][]string{}
	for user, s := range c.spies {
		js, err := jetstream.New(s.nc)
		require.NoError(t, err)
		for name := range js.StreamNames(t.Context()).Name() {
			streams[user] = append(streams[user], name)
		}
	}
	require.Len(t, streams["broker"], 5)
	require.Len(t, streams["relay"], 8)
	for from := range streams { // an account without JetStream gets no answer at all
		for user, names := range streams {
			for _, name := range names {
				for _, request := range []string{"STREAM.MSG.GET.", "STREAM.PURGE."} {
					if user != from {
						answer, err := c.spies[from].nc.Request("$JS.API."+request+name, []byte(`{"seq":1}`), time.Minute)
						require.NoError(t, err)
						require.Contains(t, string(answer.Data), "stream not found", "%s: %s of %s", from, request, name)
						probes++
					}
				}
			}
		}
	}
	for user, s := range c.spies {
		require.NoError(t, s.nc.Flush())
		for _, subject := range s.subjects(t) {
			if _, from, forged := strings.Cut(subject, "forged-by-"); forged {
				from, _, _ = strings.Cut(from, ".") // the list of failed messages has a sequence there
				require.Equal(t, user, from, "%s reached the account of %s", subject, user)
			}
		}
	}
	t.Logf("%d probes", probes)
}

// usesNATS is code that publishes or subscribes.
var usesNATS = regexp.MustCompile(`\.(Subscribe|SubscribeSync|ChanSubscribe|QueueSubscribe|Publish|PublishMsg|PublishMsgAsync|Request|RequestMsg|RequestWithContext|RequestMsgWithContext)\(|\bBeginWrite\(|jsstream\.Write\(`)

// natsFiles are the files of the product that do, with a subject of the table that they use.
var natsFiles = map[string]string{
	"broker/backup/backup.go":                  "$JS.API.>",
	"broker/internal/journal/gone.go":          "broker.x.deleted",
	"broker/internal/journal/writer.go":        "broker.m.>",
	"broker/internal/shards/shards.go":         "broker.x.dispatch",
	"relay/internal/store/store.go":            "relay.to_receiver.>",
	"relay/internal/store/record.go":           "relay.ended.>",
	"relay/internal/work/workers.go":           "relay.from_sender.>",
	"internal/registry/registry.go":            "$KV.broker_registry.>",
	"internal/deadletter/deadletter.go":        "streams of the application",
	"internal/jsstream/write.go":               "broker.m.>",
	"internal/jsstream/stored.go":              "$JS.API.>",
	"internal/jsstream/follow.go":              "$JS.API.>",
	"internal/jsstream/setback.go":             "broker.m.>",
	"internal/transport/inbox.go":              "_INBOX.>",
	"internal/running/running.go":              "jetpull.ps.*.*",
	"partition/consumers.go":                   "$KV.partition-billing.>",
	"partition/bucket.go":                      "$KV.partition-billing.>",
	"partition/set.go":                         "$KV.partition-billing.>",
	"feed/watcher.go":                          "jetpull.feed.wakeup",
	"feed/store.go":                            "jetpull.feed.wakeup",
	"feed/jetstream.go":                        "streams of the application",
	"console/internal/page/message.go":         "streams of the application",
	"console/internal/page/deadletter.go":      "streams of the application",
	"console/internal/source/jetstream.go":     "streams of the application",
	"console/internal/source/server.go":        "$SYS.REQ.USER.INFO",
	"cmd/jetpull/internal/dlqcmd/letters.go":   "streams of the application",
	"cmd/jetpull/internal/publish/publish.go":  "streams of the application",
	"cmd/jetpull/internal/publish/schedule.go": "streams of the application",
	"cmd/jetpull/internal/pulling/pulling.go":  "streams of the application",

	"confirm.go":  "_INBOX.>",
	"message.go":  "$JS.ACK.>",
	"priority.go": "$JS.API.>",
}

// A file that publishes or subscribes is in the list above with its row, and each test that a row names exists.
func TestEverySubjectIsDocumented(t *testing.T) {
	rows := subjectTable(t)
	var found []string
	tests := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel("../..", path)
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && file != "." {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(file, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(file, "_test.go") {
			for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(text), -1) {
				tests[m[1]] = true
			}
			return nil
		}
		top, _, _ := strings.Cut(filepath.ToSlash(file), "/")
		apart := slices.Contains([]string{"test", "bench", "examples", "tools", "out", "bin", "otelpull", "natsembed"}, top) ||
			strings.Contains(file, "natstest") || strings.Contains(file, "cmd/jetpull/browser/") || strings.HasPrefix(file, "internal/pgtest")
		if apart || !strings.Contains(string(text), `"github.com/nats-io/nats.go`) {
			return nil
		}
		for line := range strings.Lines(string(text)) {
			if code, _, _ := strings.Cut(line, "//"); usesNATS.MatchString(code) {
				found = append(found, filepath.ToSlash(file))
				break
			}
		}
		return nil
	})
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/listeners.md")
	require.NoError(t, err)
	for _, file := range found {
		require.Contains(t, natsFiles, file, "it publishes or subscribes: write on docs/listeners.md who may do that, and what is believed, and add it here")
	}
	for file, subject := range natsFiles {
		require.Contains(t, found, file, "it does not publish or subscribe any more: take it off the list")
		require.Contains(t, strings.ReplaceAll(string(page), "SET", "billing"), subject, file)
	}
	for _, row := range rows {
		for _, name := range row.tests {
			require.True(t, tests[name], "%q: no test is called %s", row.subjects, name)
		}
	}
}
