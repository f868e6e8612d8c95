package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// asJetpull makes the test binary be the command.
const asJetpull = "TEST_AS_JETPULL"

// TestMain keeps the contexts and the environment of whoever runs the tests out.
func TestMain(m *testing.M) {
	if os.Getenv(asJetpull) != "" {
		main()
	}
	if dir := os.Getenv(asWorker); dir != "" {
		actAsWorker(dir)
	}
	err := os.Setenv("XDG_CONFIG_HOME", filepath.Join("testdata", "none"))
	for _, name := range []string{"URL", "CONTEXT", "USER", "PASSWORD", "TOKEN", "CREDS", "NKEY", "CERT", "KEY", "CA", "TIMEOUT"} {
		err = errors.Join(err, os.Unsetenv("NATS_"+name))
	}
	if err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// asCommand is the test binary as the command, in a process of its own, which is killed if the tests are killed.
func asCommand(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asJetpull+"=1")
	natstest.EndWithParent(cmd, syscall.SIGKILL)
	return cmd
}

// result is what one command line did.
type result struct {
	code     int
	out, err string
}

// jetpullRun runs a command line to its end, which has to come within a time
// that only a command that hangs takes.
func jetpullRun(t *testing.T, args ...string) result {
	t.Helper()
	return jetpullRunWith(t, strings.NewReader(""), args...)
}

// jetpullRunWith runs a command line with a standard input.
func jetpullRunWith(t *testing.T, in io.Reader, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out, errOut buffer
	code := execute(ctx, args, in, &out, &errOut)
	require.NoError(t, ctx.Err(), "it hangs: %q\n%s", args, errOut.String())
	return result{code, out.String(), errOut.String()}
}

// fixture is a server with a stream S over s.> and a pull consumer c.
type fixture struct {
	url string
	js  jetstream.JetStream
	srv *servertest.Server
}

func newFixture(t *testing.T, cfg jetstream.ConsumerConfig) fixture {
	t.Helper()
	srv := servertest.RunServer(t)
	js, err := jetstream.New(srv.Connect(t))
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	require.NoError(t, err)
	cfg.Durable = "c"
	_, err = js.CreateConsumer(t.Context(), "S", cfg)
	require.NoError(t, err)
	return fixture{srv.URL(), js, srv}
}

// publish returns when the consumer has heard of the messages, which may be after
// their publisher has.
func (f fixture) publish(t *testing.T, bodies ...string) {
	t.Helper()
	var last uint64
	for _, body := range bodies {
		ack, err := f.js.PublishMsg(t.Context(), &nats.Msg{
			Subject: "s.a", Data: []byte(body), Header: nats.Header{"X-Kind": {"one", "two"}},
		})
		require.NoError(t, err)
		last = ack.Sequence
	}
	require.Eventually(t, func() bool {
		info := f.info(t)
		return info.Delivered.Stream+info.NumPending >= last
	}, 10*time.Second, time.Millisecond)
}

func numbers(n int) []string {
	var s []string
	for i := range n {
		s = append(s, fmt.Sprint(i+1))
	}
	return s
}

func (f fixture) info(t *testing.T) *jetstream.ConsumerInfo {
	t.Helper()
	c, err := f.js.Consumer(t.Context(), "S", "c")
	require.NoError(t, err)
	return c.CachedInfo()
}

// settled waits until the server has acknowledgements of n messages and of all
// that it delivered.
func (f fixture) settled(t *testing.T, n uint64) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		consumer, err := f.js.Consumer(t.Context(), "S", "c")
		if assert.NoError(c, err) {
			assert.Equal(c, n, consumer.CachedInfo().AckFloor.Stream)
		}
	}, 10*time.Second, 10*time.Millisecond)
}

func (f fixture) run(t *testing.T, args ...string) result {
	t.Helper()
	return jetpullRun(t, append(args[:1:1], append([]string{"--nats", f.url}, args[1:]...)...)...)
}

// start runs a command line that goes on until stop is called.
func (f fixture) start(t *testing.T, args ...string) (out, errOut *buffer, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, errOut = &buffer{}, &buffer{}
	args = append(args[:1:1], append([]string{"--nats", f.url}, args[1:]...)...)
	code := make(chan int)
	go func() { code <- execute(ctx, args, strings.NewReader(""), out, errOut) }()
	return out, errOut, func() int {
		cancel()
		return <-code
	}
}

func jsonLines[T any](t *testing.T, text string) []T {
	t.Helper()
	var all []T
	for dec := json.NewDecoder(strings.NewReader(text)); dec.More(); {
		var v T
		require.NoError(t, dec.Decode(&v), text)
		all = append(all, v)
	}
	return all
}

func TestUsageErrors(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"nonsense", `unknown command "nonsense"`},
		{"consme S c", `unknown command "consme" for "jetpull"; did you mean console or consume?`},
		{"consme S c --count 5", `unknown command "consme" for "jetpull"; did you mean console or consume?`},
		{"help consme", `unknown command "consme" for "jetpull"; did you mean console or consume?`},
		{"dlq lst D", `unknown command "lst" for "jetpull dlq"; did you mean ls?`},
		{"dlq lst D --since 1h", `unknown command "lst" for "jetpull dlq"; did you mean ls?`},
		{"relay receiverz ls", `unknown command "receiverz" for "jetpull relay"; did you mean receivers?`},
		{"relay receivers shw ci", `unknown command "shw" for "jetpull relay receivers"; did you mean show?`},
		{"broker helth", `unknown command "helth" for "jetpull broker"; did you mean health?`},
		{"feed wtch", `unknown command "wtch" for "jetpull feed"; did you mean watch?`},
		{"fetch S", "usage: jetpull fetch STREAM CONSUMER [flags], but the arguments are "},
		{"fetch S c d", "usage: jetpull fetch STREAM CONSUMER [flags], but the arguments are "},
		{"fetch S c --bogus", "unknown flag: --bogus"},
		{"fetch S c --cuont 5", "unknown flag: --cuont; did you mean --count?"},
		{"consume S c --retry-delay 5s", "unknown flag: --retry-delay; did you mean --retry-delays?"},
		{"broker --lisen :1", "unknown flag: --lisen; did you mean --listen?"},
		{"dlq ls D --json-lines", "unknown flag: --json-lines"},
		{"publish s x --header x", `jetpull: --header "x" is not 'Name: value'`},
		{"fetch S c --count many", `--count "many" is not a whole number`},
		{"publish a x --count abc", `--count "abc" is not a whole number`},
		{"consume S c --idle soon", `--idle "soon" is not a duration such as 30s`},
		{"consume S c --retry-delays 1s,x", `--retry-delays "1s,x" is not a list of durations`},
		{"publish a x --at tomorrow --schedule b", `--at "tomorrow" is not a time such as 2027-01-31T18:00:00Z`},
		{"consumers pause S c --until later", `--until "later" is not a time such as`},
		{"dlq ls D --since yesterday", `--since "yesterday": it is neither a time such as`},
		{"dlq ls D --since http://u:pw@host", `--since "http://…@host": it is neither`},
		{"fetch S c --no-wait=perhaps", `--no-wait "perhaps" is not true or false`},
		{"relay receivers put r --window-size long", `--window-size "long" is not a number`},
		{"feed ls p --status none", `--status "none": give Available, Complete or Failed`},
		{"feed --exec true --limit x", `--limit "x"`},
		{"fetch S c --nats :", `--server ":" is not the URL of a server such as nats://127.0.0.1:4222`},
		{"fetch S c --nats nats://", `--server "nats://" is not the URL of a server`},
		{"dlq purge D 7 --all", "purge: the sequences 7 and --all exclude each other; give one of them"},
		{"dlq requeue D 7 8 --all", "requeue: the sequences 7, 8 and --all exclude each other"},
		{"publish a x --at 2999-01-01T00:00:00Z --every 1h --schedule b", "--at 2999-01-01T00:00:00Z and --every 1h0m0s exclude each other"},
		{"consumers pause S c --for 1h --until 2999-01-01T00:00:00Z", "--for 1h0m0s and --until 2999-01-01T00:00:00Z exclude each other"},
		{"feed --exec true --publish x", "--exec true and --publish x exclude each other"},
		{"fetch S c --settle maybe", `--settle "maybe"`},
		{"fetch S c --wait 1s --no-wait", "--wait 1s and --no-wait exclude each other; give one of them"},
		{"fetch S c --raw --json", "--raw and --json exclude each other"},
		{"fetch S c --nats x --embedded y", "--server x and --embedded y exclude each other"},
		{"fetch S c --nats x --context y", "--server x and --context y exclude each other"},
		{"fetch S c --embedded-port 4222", "needs --embedded"},
		{"fetch S c --timeout 0s", "--timeout 0s"},
		{"fetch S c --context nowhere", `there is no context "nowhere"`},
		{"fetch S c --context ../x", "not the name of a context"},
		{"consume S c --", "no command to run"},
		{"consume S c -- /no/such/command", "cannot be run"},
		{"consume S c --raw -- true", "--raw and --print0 are for messages that are printed"},
		{"consume S c --count -1", "--count -1"},
		{"consume S c --idle -1s", "--idle -1s"},
		{"consume S c --ordered-by color", `--ordered-by "color"`},
		{"info S c --interval 2s", "--interval belongs to --watch"},
		{"info S c --watch --interval 1ms", "--interval 1ms"},
		{"broker --bogus", "unknown flag: --bogus"},
		{"broker backup", "usage: jetpull broker backup DIR [flags], but the arguments are []"},
		{"broker restore", "usage: jetpull broker restore DIR"},
		{"broker health x", `usage: jetpull broker health [flags], but the arguments are ["x"]`},
		{"broker health --url nope", `--url "nope" is not a URL such as http://127.0.0.1:8080`},
		{"feed ls --db mysql:foo", "invalid DSN: begins with none of sqlite:"},
	} {
		r := jetpullRun(t, strings.Fields(tt.line)...)
		require.Equal(t, cli.ExitUsage, r.code, "%s: %s", tt.line, r.err)
		require.Contains(t, r.err, tt.want, tt.line)
		require.Empty(t, r.out, tt.line)
	}
}

func TestServerOfTheEnvironmentIsRefused(t *testing.T) {
	t.Setenv("NATS_URL", ":")
	r := jetpullRun(t, "fetch", "S", "c")
	require.Equal(t, cli.ExitUsage, r.code, r.err)
	require.Contains(t, r.err, `NATS_URL ":" is not the URL of a server such as nats://127.0.0.1:4222`)
	t.Setenv("NATS_URL", "")
	t.Setenv("NATS_TIMEOUT", "soon")
	require.Contains(t, jetpullRun(t, "fetch", "S", "c").err, `NATS_TIMEOUT "soon" is not a duration such as 5s`)
}

// TestEmptyServer has flags that a shell's unset variable has left empty: another server must not take the place of
// the one that was meant.
func TestEmptyServer(t *testing.T) {
	for flag, want := range map[string]string{
		"-s": "give a URL, or leave it out", "--server": "give a URL, or leave it out", "--nats": "give a URL, or leave it out",
		"--context": "give a name, or leave it out", "--embedded": "give a folder, or leave it out",
	} {
		r := jetpullRun(t, "fetch", "S", "c", flag, "")
		require.Equal(t, cli.ExitUsage, r.code, r.err)
		require.Contains(t, r.err, "it is empty; "+want, flag)
	}
}

func TestHelpIsNoError(t *testing.T) {
	r := jetpullRun(t)
	require.Equal(t, cli.ExitDone, r.code)
	for _, want := range []string{"fetch", "consume", "info", "unpin", "broker", "Exit codes:", "NATS_CONTEXT"} {
		require.Contains(t, r.out, want)
	}
}

func TestHelpShowsNoEmptyDefault(t *testing.T) {
	for _, line := range []string{"console", "consume", "fetch", "relay senders put", "broker consumers put", "broker messages ls"} {
		r := jetpullRun(t, append(strings.Fields(line), "--help")...)
		require.Equal(t, cli.ExitDone, r.code, line)
		require.NotRegexp(t, `default (\)|\[\]|0s)`, r.out, line)
	}
}

func TestNoServer(t *testing.T) {
	r := jetpullRun(t, "fetch", "S", "c", "--nats", "nats://user:secret@127.0.0.1:1")
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, "no server answers at nats://…@127.0.0.1:1")
	require.NotContains(t, r.err, "secret")
}

func TestErrorsAsJSON(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	r := f.run(t, "fetch", "S", "nobody", "--json")
	require.Equal(t, cli.ExitError, r.code)
	all := jsonLines[struct {
		Error string
		Code  int
	}](t, r.err)
	require.Len(t, all, 1)
	require.Equal(t, cli.ExitError, all[0].Code)
	require.Contains(t, all[0].Error, "consumer not found")
}
