package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consumecmd/perform"
)

// asWorker makes the test binary be a program for consume --worker, with the folder that it names for its files.
const asWorker = "TEST_AS_WORKER"

// actAsWorker does with each message what its payload says. It writes its process ID, and what it was asked to note, to files in dir.
func actAsWorker(dir string) {
	err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(os.Getpid())), 0o600)
	notes, openErr := os.OpenFile(filepath.Join(dir, "notes"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err = errors.Join(err, openErr); err != nil {
		panic(err)
	}
	hang := func() { <-time.After(time.Hour) }
	in := json.NewDecoder(os.Stdin)
	for {
		var m struct {
			ID         uint64
			Subject    string
			Headers    map[string][]string
			Data       string
			DataBase64 string `json:"data_base64"`
			Attempt    int
		}
		if err := in.Decode(&m); err != nil {
			if os.Getenv("AT_END") == "hang" {
				hang()
			}
			os.Exit(0)
		}
		verb, arg, _ := strings.Cut(m.Data, " ")
		n, _ := strconv.Atoi(arg)
		outcome := `"ack"`
		switch verb {
		case "note":
			if _, err := fmt.Fprintln(notes, arg); err != nil {
				panic(err)
			}
		case "die":
			if claims(dir, m.ID, n) {
				os.Exit(7)
			}
		case "close":
			if claims(dir, m.ID, n) {
				_ = os.Stdout.Close()
				hang()
			}
		case "say":
			fmt.Println(arg)
			continue
		case "hang":
			fmt.Fprintln(os.Stderr, "hanging")
			hang()
		case "show":
			text, _ := json.Marshal(m)
			outcome = fmt.Sprintf(`"term","reason":%q`, text)
		case "nak":
			if m.Attempt == 1 {
				outcome = `"nak","delay":0.01`
			}
		case "progress":
			fmt.Printf("{\"id\":%d,\"outcome\":\"progress\"}\n", m.ID)
		case "":
			if m.DataBase64 != "/wA=" {
				outcome = `"term"`
			}
		}
		fmt.Printf("{\"id\":%d,\"outcome\":%s}\n", m.ID, outcome)
	}
}

// claims reports whether a message was given fewer than n times before, over all processes of the program.
func claims(dir string, id uint64, n int) bool {
	for i := range n {
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint("given-", id, "-", i)), os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			_ = f.Close()
			return true
		}
	}
	return false
}

// work runs the worker on messages with these payloads, and returns the outcomes of each by its sequence.
func work(t *testing.T, cfg jetstream.ConsumerConfig, payloads []string, flags ...string) (r result, outcomes map[uint64][]string) {
	t.Helper()
	t.Setenv(asWorker, t.TempDir())
	f := newFixture(t, cfg)
	f.publish(t, payloads...)
	args := append([]string{"consume", "S", "c", "--worker", "--idle", "1s", "--json", "--retry-delays", "10ms"}, flags...)
	r = f.run(t, append(args, "--", os.Args[0])...)
	outcomes = map[uint64][]string{}
	for _, line := range jsonLines[perform.Result](t, r.out) {
		outcomes[line.StreamSeq] = append(outcomes[line.StreamSeq], line.Outcome)
		require.Nil(t, line.Exit, "an attempt is no process")
	}
	f.settled(t, uint64(len(payloads)))
	return r, outcomes
}

func TestWorkerOutcomes(t *testing.T) {
	r, outcomes := work(t, jetstream.ConsumerConfig{}, []string{"ack", "nak", "show", "progress"})
	require.Equal(t, cli.ExitFailed, r.code, r.err)
	require.Equal(t, map[uint64][]string{1: {"acknowledged"}, 2: {"retried", "acknowledged"}, 3: {"terminated"}, 4: {"acknowledged"}}, outcomes)
	require.Contains(t, r.out, `{\"ID\":3,\"Subject\":\"s.a\",\"Headers\":{\"X-Kind\":[\"one\",\"two\"]},\"Data\":\"show\"`)
	require.Contains(t, r.err, `"acknowledged":3,"retried":1,"dead_lettered":0,"terminated":1,"handed_back":0,`)
}

// A payload that is not text is in data_base64, as in the output of all commands.
func TestWorkerGetsBytes(t *testing.T) {
	r, outcomes := work(t, jetstream.ConsumerConfig{}, []string{"\xff\x00"})
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Len(t, outcomes, 1)
}

// Of the messages that a program has when it dies, only the one that it dies of again, alone, has failed.
func TestWorkerDiesOfOneMessage(t *testing.T) {
	payloads := strings.Split(strings.Repeat("ack,", 40), ",")[:40]
	payloads[7] = "die 1000"
	payloads[20] = "die 1"
	for _, programs := range []string{"1", "3"} {
		r, outcomes := work(t, jetstream.ConsumerConfig{}, payloads, "--max-attempts", "2", "--concurrency", programs)
		require.Equal(t, cli.ExitFailed, r.code, r.err)
		require.Len(t, outcomes, len(payloads), r.err)
		require.Equal(t, []string{"retried", "terminated"}, outcomes[8])
		require.Equal(t, "acknowledged", outcomes[21][len(outcomes[21])-1])
		for seq, of := range outcomes {
			if seq != 8 && seq != 21 {
				require.Equal(t, []string{"acknowledged"}, of, seq)
			}
		}
		require.Contains(t, r.err, "exit status 7")
		require.Contains(t, r.err, "the worker ended, and is started again")
	}
}

// A line that is no answer is an error that names it, and the message is handled again.
func TestWorkerWritesOtherLines(t *testing.T) {
	for payload, want := range map[string]string{
		"say hello":                                `line 1 of the worker's output, \"hello\": it is not an object such as`,
		`say {"id":9,"outcome":"ack"}`:             "the worker does not have a message 9",
		"say " + strings.Repeat("x", 100<<10):      "a line of the worker's output has more than 65536 bytes",
		`say {"id":1,"outcome":"ack"}` + "\nhello": `line 2 of the worker's output, \"hello\"`,
	} {
		r, outcomes := work(t, jetstream.ConsumerConfig{}, []string{payload}, "--max-attempts", "2")
		require.Contains(t, r.err, want)
		if !strings.Contains(payload, "\n") {
			require.Equal(t, map[uint64][]string{1: {"retried", "terminated"}}, outcomes)
		}
	}
}

// A program that closes its standard output cannot answer any more. It is killed, and its message is handled again.
func TestWorkerClosesItsOutput(t *testing.T) {
	r, outcomes := work(t, jetstream.ConsumerConfig{}, []string{"close 1"})
	require.Equal(t, map[uint64][]string{1: {"retried", "acknowledged"}}, outcomes, r.err)
	require.Contains(t, r.err, "the worker ended while it had the message: it closed its standard output, and did not end")
}

// A program that goes on after its input has ended is killed after --drain-timeout.
func TestWorkerHangsAtTheEnd(t *testing.T) {
	t.Setenv("AT_END", "hang")
	r, outcomes := work(t, jetstream.ConsumerConfig{}, []string{"ack"}, "--drain-timeout", "50ms")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, map[uint64][]string{1: {"acknowledged"}}, outcomes)
	require.Contains(t, r.err, "the worker failed at the end")
}

// A message that is not done within --drain-timeout is handed back, when its program is dead.
func TestWorkerDrainTimeout(t *testing.T) {
	t.Setenv(asWorker, t.TempDir())
	f := newFixture(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	f.publish(t, "hang")
	_, errOut, stop := f.start(t, "consume", "S", "c", "--worker", "--drain-timeout", "50ms", "--max-attempts", "1", "--", os.Args[0])
	require.Eventually(t, func() bool { return strings.Contains(errOut.String(), "hanging\n") }, 30*time.Second, 5*time.Millisecond)
	require.Equal(t, cli.ExitInterrupted, stop(), errOut.String())
	require.Contains(t, errOut.String(), "drain timeout: ")
	require.Contains(t, f.run(t, "fetch", "S", "c").out, "[1] s.a (delivery 2): hang", "it is no failed attempt")
}

func TestWorkerRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"consume S c --worker":                          "--worker needs a command after --",
		"consume S c --in-flight 2 -- true":             "--in-flight 2 needs --worker",
		"consume S c --worker --concurrency 40 -- true": "--concurrency 40 times --in-flight 64 is more than 1792 messages",
		"consume S c --worker --prefetch 8 -- true":     "--prefetch 8 is less than --concurrency 1 times --in-flight 64",
	} {
		r := jetpullRun(t, strings.Fields(line)...)
		require.Equal(t, cli.ExitUsage, r.code, r.err)
		require.Contains(t, r.err, want)
	}
}
