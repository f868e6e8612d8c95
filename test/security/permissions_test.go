package security

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the database of inbox

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/inbox"
	"github.com/jetpull/jetpull/limit"
	"github.com/jetpull/jetpull/partition"
	"github.com/jetpull/jetpull/test/servertest"
)

// problems are what a part has reported. A problem that names what is waited for ends the part.
type problems struct {
	named string
	end   func()

	mu   sync.Mutex
	text strings.Builder
}

func (p *problems) add(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintln(&p.text, err)
	if p.named != "" && strings.Contains(err.Error(), p.named) {
		p.end()
	}
}

func (p *problems) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

var errFailed = errors.New("a handler that fails")

// consume handles a message of ORDERS with options, and returns once it is settled, or with what ended it.
func consume(ctx context.Context, js jetstream.JetStream, p *problems, h jetpull.Handler, opts ...jetpull.ConsumeOption) error {
	sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "worker", jetpull.OnError(p.add))
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	return sub.Consume(ctx, h, append(opts, jetpull.StopAfter(1))...)
}

func succeed(context.Context, *jetpull.Msg) error { return nil }

// parts do what a section of docs/permissions.md is about, as its user.
var parts = map[string]func(ctx context.Context, js jetstream.JetStream, p *problems) error{
	"A worker": func(ctx context.Context, js jetstream.JetStream, p *problems) error { return consume(ctx, js, p, succeed) },
	"Dead letters": func(ctx context.Context, js jetstream.JetStream, p *problems) error {
		return consume(ctx, js, p, func(context.Context, *jetpull.Msg) error { return errFailed }, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.orders"))
	},
	"Pins": func(ctx context.Context, js jetstream.JetStream, _ *problems) error {
		return jetpull.Unpin(ctx, js, "ORDERS", "pinned", "A")
	},
	"Partitions": func(ctx context.Context, js jetstream.JetStream, p *problems) error {
		set, err := partition.Open(ctx, js, "PARTED", partition.Config{Name: "billing", Partitions: 2, Subject: "parted.{partition}.*"})
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		return set.Consume(ctx, func(context.Context, *jetpull.Msg) error { stop(); return nil }, partition.With(jetpull.OnError(p.add)))
	},
	"Limits": func(ctx context.Context, js jetstream.JetStream, _ *problems) error {
		kv, err := js.KeyValue(ctx, "limits")
		if err != nil {
			return err
		}
		l, err := limit.Open(ctx, kv, "bank", limit.Config{Rate: 10, Window: time.Second, Concurrent: 2})
		if err != nil {
			return err
		}
		release, err := l.Acquire(ctx, "ada")
		if err == nil {
			release()
		}
		return errors.Join(err, l.Close(context.WithoutCancel(ctx)))
	},
	"Inbox": func(ctx context.Context, js jetstream.JetStream, p *problems) error {
		db, err := sql.Open("sqlite", "file:permissions?mode=memory&cache=shared")
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		if err := inbox.Migrate(ctx, db); err != nil {
			return err
		}
		return consume(ctx, js, p, inbox.Handler(db, func(context.Context, *sql.Tx, *jetpull.Msg) error { return nil }))
	},
}

// line is a line of a block with a subject.
var line = regexp.MustCompile(`(?m)^  "([^"]+)".*$`)

// section returns the configuration in a section of docs/permissions.md.
func section(t *testing.T, heading string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/permissions.md")
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(page), "\n## "+heading+"\n")
	require.True(t, ok, heading)
	_, text, ok = strings.Cut(text, "```conf\n")
	require.True(t, ok, heading)
	text, _, _ = strings.Cut(text, "```")
	return text
}

// attempt does a part with permissions, until the name of a subject is reported, and returns how it ended and all that was reported.
func attempt(t *testing.T, part, permissions, named string) (told string, err error) {
	t.Helper()
	srv := servertest.RunServer(t, servertest.WithConfig(fmt.Sprintf(
		"accounts {A {jetstream: enabled, users: [{user: all, password: pw}, {user: part, password: pw, permissions: {%s}}]}}", permissions)))
	fill(t, srv.JetStream(t, srv.Connect(t, nats.UserInfo("all", "pw"))))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := &problems{named: named, end: cancel}
	nc := srv.Connect(t, nats.UserInfo("part", "pw"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { p.add(err) }))
	err = parts[part](ctx, srv.JetStream(t, nc), p)
	return fmt.Sprint(err) + p.String(), errors.Join(err, ctx.Err())
}

// TestPermissions: each part works with the block of its section in docs/permissions.md, and with each line taken out something names its subject.
func TestPermissions(t *testing.T) {
	for part := range parts {
		block := section(t, part)
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			told, err := attempt(t, part, block, "")
			require.NoError(t, err)
			require.NotContains(t, strings.ToLower(told), "permission", "it needs more")
		})
		for _, found := range line.FindAllStringSubmatch(block, -1) {
			t.Run(part+" without "+found[1], func(t *testing.T) {
				t.Parallel()
				named, _, _ := strings.Cut(strings.TrimSuffix(found[1], ".>"), "*")
				told, _ := attempt(t, part, strings.Replace(block, found[0], `  "none"`, 1), named)
				require.Regexp(t, `(?i)permission`, told)
				require.Contains(t, told, named)
			})
		}
	}
}

// fill creates what the parts use.
func fill(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	transform := partition.Transform(2, "parted.*")
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "ORDERS", Subjects: []string{"orders.>"}}, {Name: "DEAD", Subjects: []string{"dead.>"}},
		{Name: "PARTED", Subjects: []string{"parted.*"}, SubjectTransform: &transform},
	} {
		_, err := js.CreateStream(t.Context(), cfg)
		require.NoError(t, err)
	}
	for _, cfg := range []jetstream.ConsumerConfig{
		{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy},
		{Durable: "pinned", AckPolicy: jetstream.AckExplicitPolicy, PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"A"}},
	} {
		_, err := js.CreateConsumer(t.Context(), "ORDERS", cfg)
		require.NoError(t, err)
	}
	_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "limits", TTL: time.Minute})
	require.NoError(t, err)
	for _, subject := range []string{"orders.new", "orders.new", "orders.new", "parted.1", "parted.2", "parted.3"} {
		_, err := js.Publish(t.Context(), subject, []byte("{}"))
		require.NoError(t, err)
	}
}
