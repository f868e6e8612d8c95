package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/natsembed"
)

// Link is a connection to a server. Server is nil unless the server runs in this process.
type Link struct {
	NC      *nats.Conn
	JS      jetstream.JetStream
	Server  *natsembed.Server
	Timeout time.Duration
	// Allowed ends when the server denies the command a publish or a subscription. Its cause is that error.
	Allowed context.Context
	deny    context.CancelCauseFunc
}

// Open connects to the server that the flags specify. It logs problems of the connection.
func (t Target) Open(ctx context.Context, command string, log *slog.Logger) (*Link, error) {
	t, err := t.Resolve()
	if err != nil {
		return nil, err
	}
	loginOptions, err := t.login.Options()
	if err != nil {
		return nil, err
	}
	l := &Link{Timeout: t.Timeout}
	l.Allowed, l.deny = context.WithCancelCause(context.Background())
	opts := append(service.NATSOptions("jetpull "+command, log), l.watchRefusals, nats.Timeout(t.Timeout), nats.ReconnectHandler(func(nc *nats.Conn) {
		log.Warn("connected again", "server", mask.URL(nc.ConnectedUrl()))
	}))
	switch {
	case t.Embedded != "":
		if l.Server, err = natsembed.Start(ctx, natsembed.Options{Dir: t.Embedded, Port: t.port, Sync: t.sync, Logger: log}); err != nil {
			if listening, ok := errors.AsType[*net.OpError](err); ok && listening.Op == "listen" && t.port != 0 {
				err = fmt.Errorf("%w; choose another --embedded-port, or 0 for any that is free", err)
			}
			return nil, err
		}
		t.URL = l.Server.URL()
	case t.Context != "":
		c, err := natscontext.Load(ctx, t.Context)
		if err != nil {
			return nil, err
		}
		own, err := c.Options()
		if err != nil {
			return nil, err
		}
		opts = append(opts, own...)
		if err := checkURLs("context "+c.Path, c.URL); err != nil {
			return nil, err
		}
		t.URL = c.URL
		if t.domain == "" && t.prefix == "" {
			t.domain, t.prefix = c.Domain, c.APIPrefix
		}
	}
	t.URL = cmp.Or(t.URL, nats.DefaultURL)
	if err := l.connect(t, append(opts, loginOptions...)); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Listens prints the URL and the sync interval of an embedded server to errOut. It does nothing for other servers.
func (l *Link) Listens(errOut io.Writer, asJSON bool) {
	switch {
	case l.Server == nil:
	case asJSON:
		_ = cli.WriteJSON(errOut, map[string]string{"server": l.Server.URL()})
	default:
		cli.Notice(errOut, "The embedded server listens on %s without authentication: every program on this machine can use it. %s\n",
			l.Server.URL(), cli.Synced(l.Server.Sync()))
	}
}

// OpenExisting is like [Target.Open], for a command that would find nothing in a new store. It returns an error if the store does not exist.
func (g *Globals) OpenExisting(cmd *cobra.Command) (*Link, error) {
	dir := g.Target.Embedded
	if _, err := os.Stat(dir); dir != "" && errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--embedded %s: the folder does not exist; give the store of a server that has run", dir)
	}
	return g.Target.Open(cmd.Context(), strings.TrimPrefix(cmd.CommandPath(), "jetpull "), cli.Log(cmd.ErrOrStderr(), cli.JSON(cmd)))
}

// With returns the RunE of a command that calls f with a connection to an existing server. The timeout for requests applies to f.
func (g *Globals) With(f func(ctx context.Context, l *Link, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		l, err := g.OpenExisting(cmd)
		if err != nil {
			return err
		}
		defer l.Close()
		return l.Within(cmd.Context(), func(ctx context.Context) error { return f(ctx, l, cmd, args) })
	}
}

// Within calls f with a context that ends after the timeout for requests, or when the server denies a request.
func (l *Link) Within(ctx context.Context, f func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer context.AfterFunc(l.Allowed, cancel)()
	return l.Explain(ctx, f(limited))
}

// Watch calls look at once and then at each interval until interrupted. Its output replaces the previous output, as with [cli.Watch]. The timeout for
// requests applies to each look. If look fails, Watch reports the error and continues. It returns the error of the first look, and if the stream or
// consumer is gone.
func (g *Globals) Watch(cmd *cobra.Command, interval time.Duration, look func(context.Context, *Link) error) error {
	l, err := g.OpenExisting(cmd)
	if err != nil {
		return err
	}
	defer l.Close()
	first := true
	return cli.Watch(cmd, interval, func() error {
		err := l.Within(cmd.Context(), func(ctx context.Context) error { return look(ctx, l) })
		gone := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
		if err == nil || first || gone || cmd.Context().Err() != nil {
			first = false
			return err
		}
		cli.Warn(cmd.ErrOrStderr(), cli.JSON(cmd), cli.Plain(err))
		return nil
	})
}

func (l *Link) connect(t Target, opts []nats.Option) (err error) {
	if t.NoWait {
		opts = append(opts, nats.ReconnectBufSize(-1)) // do not send a failed request later
	}
	l.NC, err = nats.Connect(t.URL, opts...)
	op, network := errors.AsType[*net.OpError](err) // a server that rejects a login has responded
	if t.NoWait && (errors.Is(err, nats.ErrNoServers) || network && op.Op == "dial") {
		l.NC, err = nats.Connect(t.URL, append(opts, nats.RetryOnFailedConnect(true))...)
	}
	if err != nil {
		return connectError(t, err)
	}
	switch {
	case t.prefix != "" && t.domain != "":
		err = cli.Usage(fmt.Errorf("there are an API prefix %q and a domain %q; use one of them", t.prefix, t.domain))
	case t.prefix != "":
		l.JS, err = jetstream.NewWithAPIPrefix(l.NC, t.prefix)
	case t.domain != "":
		l.JS, err = jetstream.NewWithDomain(l.NC, t.domain)
	default:
		l.JS, err = jetstream.New(l.NC)
	}
	return err
}

// connectError adds advice to the error of a failed connection. It masks passwords.
func connectError(t Target, err error) error {
	at, slow := mask.URL(t.URL), net.Error(nil)
	if errors.Is(err, nats.ErrTimeout) || errors.As(err, &slow) && slow.Timeout() {
		return fmt.Errorf("no answer from %s within %v: %w", at, t.Timeout, context.DeadlineExceeded)
	}
	err = mask.Error(err, t.URL)
	if errors.Is(err, nats.ErrNoServers) {
		return fmt.Errorf("no server answers at %s; start one, name another with --server, or use --embedded DIR: %w", at, err)
	}
	return fmt.Errorf("connect to %s: %w", at, err)
}

// EnsureStream creates a stream unless one of its name exists. It returns the subjects of an existing stream, or nil for a new stream.
func (l *Link) EnsureStream(ctx context.Context, c jetstream.StreamConfig) (existing []string, err error) {
	s, err := l.JS.Stream(ctx, c.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = l.JS.CreateStream(ctx, c)
	} else if err == nil {
		return append([]string{}, s.CachedInfo().Config.Subjects...), nil
	}
	if err != nil {
		return nil, fmt.Errorf("create stream %q over %q: %w", c.Name, c.Subjects, err)
	}
	return nil, nil
}

// Close closes the connection, and stops an embedded server.
func (l *Link) Close() {
	if l.NC != nil {
		// Send acknowledgements and other published messages first. Without a connection, wait for one only if messages are buffered.
		if waits, _ := l.NC.Buffered(); waits > 0 || l.NC.IsConnected() {
			_ = l.NC.FlushTimeout(l.Timeout)
		}
		l.NC.Close()
	}
	if l.Server != nil {
		l.Server.Stop()
	}
}

// The server does not respond to a request that it denies; it reports the denial on the connection. Without that report, the request would fail
// as if there were no message, no stream or no server.

// watchRefusals records the first denial of the server, and calls the existing error handler for the rest.
func (l *Link) watchRefusals(o *nats.Options) error {
	next := o.AsyncErrorCB
	o.AsyncErrorCB = func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			l.deny(fmt.Errorf("the user may not do this; allow it in the server's permissions: %w", err))
		}
		next(nc, sub, err)
	}
	return nil
}

// errNoJetStream replaces the errors of all requests to an account without JetStream.
var errNoJetStream = errors.New("JetStream is not enabled for this account; enable it, or connect as a user of another account")

// Explain returns the cause of an error that reports only a missing response or message: a denial, or an account without JetStream.
func (l *Link) Explain(ctx context.Context, err error) error {
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, jetpull.ErrTimeout) || errors.Is(err, jetpull.ErrNoMessages) || errors.Is(err, cli.ErrShort)
	nobody := errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetpull.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
	switch {
	case ctx.Err() != nil:
		return err
	case late && l.Allowed.Err() != nil:
		return context.Cause(l.Allowed)
	case nobody:
		ctx, cancel := context.WithTimeout(ctx, l.Timeout)
		defer cancel()
		_, asked := l.JS.AccountInfo(ctx)
		if errors.Is(asked, jetstream.ErrJetStreamNotEnabled) || errors.Is(asked, jetstream.ErrJetStreamNotEnabledForAccount) {
			return errNoJetStream
		}
	}
	return err
}
