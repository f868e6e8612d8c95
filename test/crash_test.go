package test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// serverEnv names the folder of a server that this test binary is to be, and
// portEnv its port.
const (
	serverEnv = "JETPULL_TEST_SERVER_STORE"
	portEnv   = "JETPULL_TEST_SERVER_PORT"
)

// atATime is how many parallel tests run together: they wait far more than they
// compute.
const atATime = 12

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverEnv); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(atATime))
	}
	os.Exit(m.Run())
}

// serve is a server that prints its address and lives as long as the other end of
// its standard input.
func serve(dir string) error {
	port, err := strconv.Atoi(os.Getenv(portEnv))
	if err != nil {
		return fmt.Errorf("%s: %w", portEnv, err)
	}
	s, err := servertest.StartServer(dir, servertest.WithOptions(func(o *server.Options) { o.Port = port }))
	if err != nil {
		return err
	}
	fmt.Println(s.URL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Stop()
	return nil
}

// child is a server in a process of its own, which can be killed.
type child struct {
	t    *testing.T
	dir  string
	url  string
	port string
	cmd  *exec.Cmd
}

func newChild(t *testing.T) *child {
	t.Helper()
	c := &child{t: t, dir: t.TempDir(), port: strconv.Itoa(server.RANDOM_PORT)}
	c.start()
	t.Cleanup(c.kill)
	return c
}

// start starts the server on the store and port that it had before.
func (c *child) start() {
	c.t.Helper()
	c.cmd = exec.Command(os.Args[0])
	c.cmd.Env = append(os.Environ(), serverEnv+"="+c.dir, portEnv+"="+c.port)
	c.cmd.Stderr = os.Stderr
	_, err := c.cmd.StdinPipe()
	require.NoError(c.t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, c.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(c.t, err)
	c.url = strings.TrimSpace(line)
	c.port = c.url[strings.LastIndexByte(c.url, ':')+1:]
}

// kill is kill -9.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// TestAServerCrashRepeatsNothingThatWasFinished: a server that is killed forgets
// the acknowledgements of its last moments, and counts those deliveries again from
// one. This Consume does not handle a message again whose handler has succeeded.
func TestAServerCrashRepeatsNothingThatWasFinished(t *testing.T) {
	t.Parallel()
	const handling = 60 * time.Millisecond
	kills := 6
	if testing.Short() {
		kills = 2
	}
	srv := newChild(t)
	nc := connect(t, srv.url)
	js := natstest.JetStream(t, nc)
	natstest.StreamWith(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Storage: jetstream.FileStorage})
	natstest.Consumer(t, js, "S", jetstream.ConsumerConfig{Durable: "C", AckWait: 5 * time.Second})
	c := newChecker()
	c.key = noOrder
	run := consume(t, subscribe(t, js, "S", "C"), c.handler(handling), jetpull.Concurrency(2))
	stopFeed := feed(t, js, 28) // a little less than is handled, so that messages are delivered right before
	for range kills {
		c.wait(t, c.count()+25, patience)
		srv.kill()
		eventually(t, func() error {
			if nc.IsConnected() {
				return fmt.Errorf("the connection is %v", nc.Status())
			}
			return nil
		}, "the client has lost its connection")
		srv.start()
	}
	total := stopFeed()
	c.wait(t, total, patience)
	consumerHas(t, js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == uint64(total) }, "all are acknowledged")
	run.end(t)
	c.check(t, total)
}
