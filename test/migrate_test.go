package test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed/embedtest"
)

// prelude declares what the code in the tables of docs/from-nats.md uses.
const prelude = `package rows

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

var (
	ctx, cancel = context.WithCancel(context.Background())
	err         error
	nc          *nats.Conn
	js          jetstream.JetStream
	stream      jetstream.Stream
	c           jetstream.Consumer
	old         func(jetstream.Msg)
	oldErr      func(jetstream.ConsumeContext, error)
	cc          jetstream.ConsumeContext
	it          jetstream.MessagesContext
	msg         jetstream.Msg
	legacy      nats.JetStreamContext
	oldPush     nats.MsgHandler
	pulled      *nats.Subscription
	raw         *nats.Msg
	sub         *jetpull.Subscription
	h           jetpull.Handler
	m           *jetpull.Msg
	msgs        []*jetpull.Msg
	onError     func(error)
	onEvent     func(jetpull.Event)
)

func handle(...any) {}
`

var span = regexp.MustCompile("`([^`]+)`")

// TestMigrateRows compiles the code in the first two columns of each row.
func TestMigrateRows(t *testing.T) {
	readSources(t)
	text := readMigrate(t)
	var code strings.Builder
	code.WriteString(prelude)
	rows := 0
	for line := range strings.Lines(text) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != 3 {
			require.False(t, strings.HasPrefix(line, "| `"), "a row of three columns: %s", line)
			continue
		}
		rows++
		was, is := span.FindAllStringSubmatch(cells[0], -1), span.FindAllStringSubmatch(cells[1], -1)
		require.True(t, len(is) > 0 || cells[1] == "none", "the second column is code, or none: %s", line)
		for _, m := range slices.Concat(was, is) {
			fmt.Fprintf(&code, "\nfunc _() { // %s\n\t%s\n}\n", cells[0], statement(m[1]))
		}
	}
	require.Greater(t, rows, 40)
	file := filepath.Join(t.TempDir(), "rows.go")
	require.NoError(t, os.WriteFile(file, []byte(code.String()), 0o600))
	out, err := exec.Command("go", "build", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// statement is code as a statement. A call of a package's may be a conversion, which must be used.
func statement(code string) string {
	expr, err := parser.ParseExpr(code)
	if err != nil {
		return code
	}
	if call, ok := expr.(*ast.CallExpr); ok {
		if f, ok := call.Fun.(*ast.SelectorExpr); ok {
			if of, ok := f.X.(*ast.Ident); ok && slices.Contains([]string{"jetstream", "jetpull", "nats", "errors"}, of.Name) {
				return "handle(" + code + ")"
			}
		}
	}
	return code
}

// TestMigrateIsComplete: each call that nats.go has on a consumer is in the document, and each option of these calls.
func TestMigrateIsComplete(t *testing.T) {
	text := readMigrate(t)
	for of, typ := range map[string]reflect.Type{
		"c": reflect.TypeFor[jetstream.Consumer](), "cc": reflect.TypeFor[jetstream.ConsumeContext](), "it": reflect.TypeFor[jetstream.MessagesContext](),
	} {
		for i := range typ.NumMethod() {
			require.Contains(t, text, of+"."+typ.Method(i).Name+"(")
		}
	}
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", natsClient+"/jetstream").Output()
	require.NoError(t, err)
	options, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "jetstream_options.go"))
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^(?:type|func) ((?:Pull|Fetch|Next|WithMessages|StopAfter|ConsumeErr)\w*)`).FindAllStringSubmatch(string(options), -1)
	require.Greater(t, len(found), 20)
	for _, m := range found {
		require.Contains(t, text, "jetstream."+m[1]+"(", "an option of nats.go")
	}
}

func readMigrate(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/from-nats.md")
	require.NoError(t, err)
	return string(text)
}

// The programs of docs/from-nats.md, word for word.

func workWithNATS(ctx context.Context, c jetstream.Consumer) error {
	cc, err := c.Consume(func(m jetstream.Msg) {
		if err := ship(ctx, m.Data()); err != nil {
			_ = m.NakWithDelay(time.Second)
			return
		}
		_ = m.Ack()
	}, jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { log.Print(err) }))
	if err != nil {
		return err
	}
	<-ctx.Done()
	cc.Drain()
	<-cc.Closed()
	return nil
}

func workWithJetpull(ctx context.Context, js jetstream.JetStream, c jetstream.Consumer) error {
	sub, err := jetpull.SubscribeConsumer(ctx, js, c)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	return sub.Consume(ctx, func(ctx context.Context, m *jetpull.Msg) error {
		return ship(ctx, m.Data())
	}, jetpull.OnError(func(err error) { log.Print(err) }))
}

func keepHandler(ctx context.Context, sub *jetpull.Subscription, old func(jetstream.Msg)) error {
	return sub.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
		old(m)
		return nil
	}, jetpull.ManualAck())
}

// shipments counts the calls of ship for each order; the first for order 2 fails.
var shipments = struct {
	mu    sync.Mutex
	calls map[string]int
}{calls: map[string]int{}}

func ship(_ context.Context, order []byte) error {
	shipments.mu.Lock()
	defer shipments.mu.Unlock()
	shipments.calls[string(order)]++
	if string(order) == "2" && shipments.calls["2"] == 1 {
		return errors.New("no ship")
	}
	return nil
}

// TestMigratePrograms runs both programs on the same messages, and holds the document against them.
func TestMigratePrograms(t *testing.T) {
	source, err := os.ReadFile("migrate_test.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readMigrate(t), -1)
	require.Len(t, blocks, 3)
	for _, b := range blocks {
		require.Contains(t, string(source), "\n"+b[1], "a block of docs/from-nats.md is not in this file")
	}
	log.SetOutput(t.Output())
	defer log.SetOutput(os.Stderr)
	for name, work := range map[string]func(context.Context, jetstream.JetStream, jetstream.Consumer) error{
		"nats.go": func(ctx context.Context, _ jetstream.JetStream, c jetstream.Consumer) error {
			return workWithNATS(ctx, c)
		},
		"jetpull": workWithJetpull,
		"jetpull with a handler for nats.go": func(ctx context.Context, js jetstream.JetStream, c jetstream.Consumer) error {
			sub, err := jetpull.SubscribeConsumer(ctx, js, c)
			if err != nil {
				return err
			}
			defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
			return keepHandler(ctx, sub, func(m jetstream.Msg) {
				go func() { // it may settle its message after it has returned
					settle := m.Ack
					if ship(ctx, m.Data()) != nil {
						settle = m.Nak
					}
					assert.NoError(t, settle())
				}()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			clear(shipments.calls)
			env, orders := embedtest.Start(t), []string{"1", "2", "3"}
			for _, order := range orders {
				_, err := env.JS.Publish(t.Context(), "test.orders", []byte(order))
				require.NoError(t, err)
			}
			c, err := env.JS.Consumer(t.Context(), env.Stream, env.Consumer)
			require.NoError(t, err)
			require.Eventually(t, func() bool { // the server passes a message to its consumers after it has answered the publisher
				info, err := c.Info(t.Context())
				return err == nil && info.NumPending == uint64(len(orders))
			}, time.Minute, time.Millisecond)
			endsWhenSettled(t, c, func(ctx context.Context) error { return work(ctx, env.JS, c) })
			require.Equal(t, map[string]int{"1": 1, "2": 2, "3": 1}, shipments.calls)
		})
	}
}

// endsWhenSettled runs f and ends its context when every message is settled.
func endsWhenSettled(t *testing.T, c jetstream.Consumer, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	require.Eventually(t, func() bool {
		info, err := c.Info(t.Context())
		return err == nil && info.NumPending == 0 && info.NumAckPending == 0
	}, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}
