package security

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
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
	"A worker": func(ctx context.Context, js jetstream.JetStream, p *problems) error {
		return consume(ctx, js, p, succeed)
	},
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

// section returns the configuration in a section of docs/permissions.md.
func section(t *testing.T, heading string) string {
	return servertest.PermissionsOf(t, "../..", heading)
}

// attempt does a part with permissions, until the name of a subject is reported, and returns how it ended and all that was reported.
func attempt(t *testing.T, part, permissions, named string) (printed string, err error) {
	t.Helper()
	srv := servertest.RunServer(t, servertest.WithConfig(servertest.PartConfig(permissions)))
	fill(t, srv.JetStream(t, srv.Connect(t, nats.UserInfo("all", "pw"))))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := &problems{named: named, end: cancel}
	nc := srv.Connect(t, nats.UserInfo("part", "pw"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { p.add(err) }))
	err = parts[part](ctx, srv.JetStream(t, nc), p)
	return fmt.Sprint(err) + p.String(), errors.Join(err, ctx.Err())
}

// TestPermissionsOfParts: each part works with the block of its section in docs/permissions.md, and with each line taken out something names its subject.
func TestPermissionsOfParts(t *testing.T) {
	for part := range parts {
		block := section(t, strings.Replace(part, "Inbox", "A worker", 1)) // inbox needs what a worker needs
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			printed, err := attempt(t, part, block, "")
			require.NoError(t, err)
			for line := range strings.Lines(strings.ToLower(printed)) {
				if !strings.Contains(line, "$js.api.consumer.delete.kv_limits.") { // which a process that stops tries, and need not
					require.NotContains(t, line, "permission", "it needs more")
				}
			}
		})
		for subject, rest := range servertest.WithoutEach(block) {
			t.Run(part+" without "+subject, func(t *testing.T) {
				t.Parallel()
				named := strings.TrimSuffix(servertest.Literal(subject), ".")
				printed, _ := attempt(t, part, rest, named)
				require.Regexp(t, `(?i)permission`, printed)
				require.Contains(t, printed, named)
			})
		}
	}
}

// started handles a message as a worker, with the API of somewhere else.
func started(t *testing.T, nc *nats.Conn, js jetstream.JetStream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p := &problems{}
	err := consume(ctx, js, p, succeed)
	require.NoError(t, errors.Join(err, ctx.Err(), nc.LastError()), p)
}

// A worker of another account works with the configuration of the page. TestAStreamOfAnotherAccount has the errors without its parts.
func TestPermissionsOfAnotherAccount(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t, servertest.WithConfig(section(t, "A stream of another account")))
	fill(t, srv.JetStream(t, srv.Connect(t, nats.UserInfo("all", "pw"))))
	nc := srv.Connect(t, nats.UserInfo("part", "pw"))
	js, err := jetstream.NewWithAPIPrefix(nc, "OWNER.API")
	require.NoError(t, err)
	started(t, nc, js)
}

// At a leaf node the subjects have the domain of the hub, for its clients and for the user of its connection. The hub's own clients need those without it.
func TestPermissionsWithADomain(t *testing.T) {
	addresses, err := servertest.FreeAddresses(1)
	require.NoError(t, err)
	atLeaf := section(t, "A domain and a leaf node")
	users := strings.Replace(servertest.PartConfig(section(t, "A worker")), "users: [", "users: [{user: leaf, password: pw, permissions: {"+atLeaf+"}}, ", 1)
	hub := servertest.RunServer(t, servertest.WithDomain("hub"), servertest.WithConfig(users),
		servertest.WithOptions(func(o *server.Options) { o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", addresses[0].Port }))
	fill(t, hub.JetStream(t, hub.Connect(t, nats.UserInfo("all", "pw"))))
	remote := &server.RemoteLeafOpts{LocalAccount: "A", URLs: []*url.URL{{Scheme: "nats-leaf", Host: addresses[0].String(), User: url.UserPassword("leaf", "pw")}}}
	leaf := servertest.RunServer(t, servertest.WithDomain("leaf"), servertest.WithConfig(servertest.PartConfig(atLeaf)),
		servertest.WithOptions(func(o *server.Options) { o.LeafNode.Remotes = []*server.RemoteLeafOpts{remote} }))
	require.Eventually(t, func() bool { return leaf.Unwrap().NumLeafNodes() == 1 }, time.Minute, 10*time.Millisecond)
	for _, srv := range []*servertest.Server{hub, leaf} {
		nc := srv.Connect(t, nats.UserInfo("part", "pw"))
		js, err := jetstream.NewWithDomain(nc, "hub")
		require.NoError(t, err)
		started(t, nc, js)
	}
}

// fill creates what the parts use.
func fill(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	transform := partition.Transform(2, "parted.*")
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "ORDERS", Subjects: []string{"orders.>"}},
		{Name: "DEAD", Subjects: []string{"dead.>"}},
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
