package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/test/servertest"
)

// watching runs jetpull feed with the flags until stop is called, which checks that the end is a good one.
func watching(t *testing.T, db string, args ...string) (errOut *buffer, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	errOut = &buffer{}
	code := make(chan int, 1)
	args = append([]string{"feed", "--db", db, "--poll-min", "10ms", "--backoff", "1ms", "--max-retries", "2"}, args...)
	go func() { code <- execute(ctx, args, strings.NewReader(""), io.Discard, errOut) }()
	return errOut, func() {
		t.Helper()
		cancel()
		select {
		case c := <-code:
			require.Equal(t, cli.ExitDone, c, errOut.String())
		case <-time.After(30 * time.Second):
			t.Fatal("jetpull feed does not end")
		}
	}
}

func newDB(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "feed.db") }

func awaitStatus(t *testing.T, db, partition, status string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return strings.Contains(jetpullFeed(t, db, "", "show", partition, "--json").out, `"status":"`+status+`"`)
	}, 30*time.Second, 20*time.Millisecond)
}

// TestExec has commands end in each way that they can.
func TestFeedExec(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip(err)
	}
	db := newDB(t)
	require.Zero(t, jetpullFeed(t, db, "plain\nmoves\nflaky\nbad data\nloud\nnot json\nhuge\nslow\nsays no", "add", "p").code)
	errOut, stop := watching(t, db, "--timeout", "2s", "--exec", `
		read -r text
		case "$text" in
		plain) ;;
		moves) [ "$FEED_GATE" = 5 ] && echo '{"done":true,"data":{"at":5}}' || echo '{"gate":5}' ;;
		flaky) echo "attempt $FEED_ATTEMPT of $FEED_PARTITION/${FEED_ITEM:-?} ${IDEMPOTENCY_KEY:-?}" >&2; [ "$FEED_ATTEMPT" = 3 ] ;;
		"bad data") echo wrong >&2; exit 65 ;;
		loud) echo "not for the log to hide" >&2; echo '{"done":true}' ;;
		"not json") echo done ;;
		huge) head -c 2000000 /dev/zero | tr '\0' x ;;
		slow) sleep 600 ;;
		"says no") echo '{"error":{"message":"no","no_retry":true}}' ;;
		esac`)
	awaitStatus(t, db, "p", "Failed")
	stop()
	items := map[string]string{}
	for _, it := range itemLines(t, db, "ls", "p", "--gate", "0") {
		r := jetpullFeed(t, db, "", "show", "p", it.ID)
		items[*it.Data] = r.out
	}
	for data, want := range map[string]string{
		"plain": "Complete", "loud": "Complete", "flaky": "Complete", "bad data": "wrong", "not json": "not the JSON", "huge": "printed over",
		"slow": "took over 2s", "says no": `"no"`,
	} {
		require.Contains(t, items[data], want, data)
	}
	require.NotContains(t, items["bad data"]+items["says no"], `"attempt": 2`)
	require.Regexp(t, `"attempt": 3,\s+"error": "the command took over`, items["slow"])
	require.Contains(t, errOut.String(), "not for the log to hide\n")
	require.Equal(t, 1, strings.Count(errOut.String(), "wrong"), "the log repeats it: %s", errOut.String())
	require.Contains(t, errOut.String(), `"error":"exit status 65"`)
	require.Regexp(t, `attempt 3 of p/[A-Za-z0-9]{22} [0-9a-f]{32}\n`, errOut.String())
	require.Equal(t, "moves\n", jetpullFeed(t, db, "", "ls", "p", "--data", "--gate", "5").out, "it waits for the failed ones")
	require.Zero(t, jetpullFeed(t, db, "", "skip", "p").code)
	_, stop = watching(t, db, "--exec", `echo '{"done":true,"data":{"at":5}}'`)
	require.Eventually(t, func() bool {
		return jetpullFeed(t, db, "", "ls", "p", "--data", "--gate", "5").out == `{"at":5}`+"\n"
	}, 30*time.Second, 20*time.Millisecond)
	stop()
}

// TestPublish has a worker process what jetpull feed publishes.
func TestFeedPublish(t *testing.T) {
	srv := servertest.RunServer(t)
	js := srv.JetStream(t, srv.Connect(t))
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "WORK", Subjects: []string{"work", "work.done.>"},
		Retention: jetstream.WorkQueuePolicy,
	})
	require.NoError(t, err)
	_, err = js.CreateConsumer(t.Context(), "WORK", jetstream.ConsumerConfig{Durable: "workers", FilterSubject: "work"})
	require.NoError(t, err)
	h, err := feed.JetStreamHandler(js, feed.ProcessorFunc(func(context.Context, feed.Item) (feed.Response, error) {
		return feed.Response{Done: true},
			nil
	}))
	require.NoError(t, err)
	sub, err := jetpull.Subscribe(t.Context(), js, "WORK", "workers")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() { worked <- sub.Consume(ctx, h) }()
	db := newDB(t)
	require.Zero(t, jetpullFeed(t, db, "1\n2\n", "add", "p", "--seal").code)
	_, stop := watching(t, db, "--publish", "work", "--nats", srv.URL(), "--auto-close")
	awaitStatus(t, db, "p", "Complete")
	stop()
	cancel()
	require.NoError(t, <-worked)
	require.NoError(t, sub.Close(t.Context()))
	r := jetpullFeed(t, db, "", "--publish", "elsewhere", "--nats", srv.URL())
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "no stream captures")
}

// TestMetrics asks what a monitoring system asks.
func TestFeedMetrics(t *testing.T) {
	db := newDB(t)
	require.Zero(t, jetpullFeed(t, db, "1\n2\n", "add", "p", "--seal").code)
	errOut, stop := watching(t, db, "--exec", "true", "--auto-close", "--metrics", "127.0.0.1:0", "--log-level", "debug")
	awaitStatus(t, db, "p", "Complete")
	url := regexp.MustCompile(`"url":"(http://127\.0\.0\.1:\d+)/metrics"`).FindStringSubmatch(errOut.String())
	require.NotNil(t, url, errOut.String())
	get := func(path string) (int, string) {
		resp, err := http.Get(url[1] + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	for path, want := range map[string]string{"/metrics": `feed_ended_items_total{status="Complete"} 2`, "/healthz": "ok", "/readyz": "ready"} {
		code, body := get(path)
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, body, want)
	}
	require.NoError(t, brokerRun(t, "health", "--url", url[1]), "the health check of compose-feed.yaml")
	code, _ := get("/")
	require.Equal(t, http.StatusNotFound, code)
	// A page that has led a name of its own to this machine reads nothing.
	for host, want := range map[string]int{
		"rebound.example:9090": http.StatusForbidden, "10.1.2.3": http.StatusForbidden,
		"localhost:9090": http.StatusOK, "[::1]": http.StatusOK,
	} {
		for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
			r, err := http.NewRequest(http.MethodGet, url[1]+path, nil)
			require.NoError(t, err)
			r.Host = host
			resp, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, want, resp.StatusCode, "%s of %s", path, host)
		}
	}
	require.Contains(t, errOut.String(), "feed: partition complete")
	stop()
	r := jetpullFeed(t, db, "", "--exec", "true", "--metrics", "127.0.0.1:notaport")
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, "--metrics")
}

// TestBackoff: the delay doubles to a minute, and is never shorter than what was given, however long that is.
func TestFeedBackoff(t *testing.T) {
	r := jetpullFeed(t, newDB(t), "", "--exec", "true", "--backoff", "-1s")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "--backoff -1s is not in 0s..8760h0m0s")
}

// The command of docs/partitions.md processes what there is.
func TestFeedLimits(t *testing.T) {
	needShell(t)
	text, err := os.ReadFile("../../docs/partitions.md")
	require.NoError(t, err)
	_, flags, found := strings.Cut(string(text), "    jetpull feed --exec ./ask.sh ")
	require.True(t, found)
	flags, _, _ = strings.Cut(flags, "\n")
	db, dir := newDB(t), t.TempDir()
	require.Zero(t, jetpullFeed(t, db, strings.Repeat("question\n", 30), "add", "p", "--gate", "2", "--seal").code)
	// Each makes a folder for its place among the ten, which fails where another one has it.
	_, stop := watching(t, db, append(strings.Fields(flags), "--auto-close", "--max-retries", "0", "--exec",
		"cd "+dir+` && for n in 1 2 3 4 5; do mkdir $n 2>/dev/null && { sleep 0.01; rmdir $n; exit; }; done; exit 1`)...)
	awaitStatus(t, db, "p", "Complete")
	stop()
	for flag, want := range map[string]string{
		"2": "does not begin with a gate's number", "2=1/1ms": "1ms is not in 1s..24h",
		"2=x": "is not one number",
	} {
		r := jetpullFeed(t, db, "", "--exec", "true", "--limit", flag)
		require.Equal(t, cli.ExitUsage, r.code, r.err)
		require.Contains(t, r.err, want)
	}
	r := jetpullFeed(t, db, "", "--exec", "true", "--partition-concurrency", "-1")
	require.Equal(t, cli.ExitUsage, r.code)
}

// TestFeedWaysAreAlike: a command and an HTTP handler that print the same have the same effects.
func TestFeedWaysAreAlike(t *testing.T) {
	needShell(t)
	const never, busy = `{"error":{"message":"never","no_retry":true}}`, `{"error":{"message":"busy","retry_after":0.05}}`
	repaired := filepath.Join(t.TempDir(), "repaired")
	answer := func(data, attempt string) (code int, text string) {
		_, err := os.Stat(repaired)
		switch {
		case data == "never" && err != nil:
			return http.StatusBadRequest, never
		case data == "never in a good answer" && err != nil:
			return http.StatusOK, never
		case data == "busy" && attempt == "1":
			return http.StatusTooManyRequests, busy
		}
		return http.StatusOK, `{"done":true,"data":{"of":"` + data + `"}}`
	}
	handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		code, text := answer(string(data), r.Header.Get(feed.HeaderAttempt))
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(handler.Close)
	command := `text=$(cat)
		case "$text" in
		never) [ -e ` + repaired + ` ] || { echo '` + never + `'; exit 1; } ;;
		"never in a good answer") [ -e ` + repaired + ` ] || { echo '` + never + `'; exit; } ;;
		busy) [ "$FEED_ATTEMPT" = 1 ] && { echo '` + busy + `'; exit 1; } ;;
		esac
		echo "{\"done\":true,\"data\":{\"of\":\"$text\"}}"`
	for _, way := range [][]string{{"--exec", command}, {"--handler", handler.URL}} {
		t.Run(way[0], func(t *testing.T) {
			require.NoError(t, os.RemoveAll(repaired))
			db := newDB(t)
			require.Zero(t, jetpullFeed(t, db, "never\nnever in a good answer\nbusy\nplain\n", "add", "p").code)
			require.Zero(t, jetpullFeed(t, db, "last\n", "add", "p", "--gate", "5", "--open-after", "200ms", "--seal").code)
			// A delay that the answer does not set is longer than the test.
			_, stop := watching(t, db, append(way, "--auto-close", "--backoff", "1h", "--limit", "0=3,50/1s")...)
			awaitStatus(t, db, "p", "Failed")
			require.Equal(t, "last\n", jetpullFeed(t, db, "", "ls", "p", "--data", "--gate", "5").out)
			require.NoError(t, os.WriteFile(repaired, nil, 0o600))
			require.Zero(t, jetpullFeed(t, db, "", "retry", "p").code)
			awaitStatus(t, db, "p", "Complete")
			stop()
			ended := jetpullFeed(t, db, "", "ls", "p", "--data", "--gate", "0").out + jetpullFeed(t, db, "", "ls", "p", "--data", "--gate", "5").out
			for _, data := range []string{"never", "never in a good answer", "busy", "plain", "last"} {
				require.Contains(t, ended, `{"of":"`+data+`"}`+"\n")
			}
			histories := ""
			for _, it := range itemLines(t, db, "ls", "p", "--gate", "0") {
				histories += jetpullFeed(t, db, "", "show", "p", it.ID).out
			}
			require.Len(t, regexp.MustCompile(`(?m)^      "error": ".*never"$`).FindAllString(histories, -1), 2, histories)
			require.Len(t, regexp.MustCompile(`(?m)^      "error": ".*busy"$`).FindAllString(histories, -1), 1, histories)
		})
	}
}
