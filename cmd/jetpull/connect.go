package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
	"github.com/jetpull/jetpull/natsembed"
)

const targetHelp = `The server is, in this order: --embedded, --server or --context, the environment's
NATS_URL or NATS_CONTEXT, the context that the nats command has selected, or
nats://127.0.0.1:4222. The flags for it, and NATS_USER, NATS_PASSWORD, NATS_TOKEN,
NATS_CREDS, NATS_NKEY, NATS_CERT, NATS_KEY, NATS_CA and NATS_TIMEOUT, are those of
the nats command.`

// target is which server to use, as the user said it.
type target struct {
	url, context, embedded string
	login                  login
	domain, prefix         string
	port                   int
	timeout                time.Duration
}

// link is a connection to the server, with the server itself where it runs in
// this process.
type link struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	srv     *natsembed.Server
	timeout time.Duration
}

// resolve fills in what the user did not say, from the environment and the nats
// command's selection.
func (t target) resolve() (target, error) {
	var given []string
	for flag, value := range map[string]string{"--server": t.url, "--context": t.context, "--embedded": t.embedded} {
		if value != "" {
			given = append(given, flag)
		}
	}
	if len(given) > 1 {
		return t, cli.Usage(errors.New("--embedded, --server and --context each say which server to use; give one of them"))
	}
	var err error
	if t.timeout, err = timeoutFromEnvironment(t.timeout); err != nil {
		return t, err
	}
	if t.embedded == "" {
		t.login.fromEnvironment()
	}
	if err := t.login.check(); err != nil {
		return t, err
	}
	if t.timeout <= 0 {
		return t, cli.Usage(fmt.Errorf("--timeout %v is not more than 0", t.timeout))
	}
	if t.embedded == "" && t.port != 0 {
		return t, cli.Usage(fmt.Errorf("--embedded-port %d needs --embedded", t.port))
	}
	if err := inRange("--embedded-port", t.port, 0, math.MaxUint16); err != nil {
		return t, err
	}
	if len(given) == 1 {
		return t, checkURLs("--server", t.url)
	}
	if t.url = os.Getenv("NATS_URL"); t.url != "" {
		return t, checkURLs("NATS_URL", t.url)
	}
	if t.context = os.Getenv("NATS_CONTEXT"); t.context != "" {
		return t, nil
	}
	t.context, err = natscontext.Selected()
	return t, err
}

// open connects as the user said. Problems of the connection are told on errOut.
func (t target) open(ctx context.Context, command string, errOut io.Writer) (*link, error) {
	t, err := t.resolve()
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: slog.LevelWarn}))
	l := &link{timeout: t.timeout}
	opts := connectOptions(command, t.timeout, log)
	switch {
	case t.embedded != "":
		if l.srv, err = natsembed.Start(ctx, natsembed.Options{Dir: t.embedded, Port: t.port, Logger: log}); err != nil {
			return nil, err
		}
		t.url = l.srv.URL()
	case t.context != "":
		c, err := natscontext.Load(ctx, t.context)
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
		t.url = c.URL
		if t.domain == "" && t.prefix == "" {
			t.domain, t.prefix = c.Domain, c.APIPrefix
		}
	}
	if t.url == "" {
		t.url = nats.DefaultURL
	}
	own, err := t.login.options()
	if err != nil {
		l.close()
		return nil, err
	}
	return l, l.connect(t, append(opts, own...))
}

func (l *link) connect(t target, opts []nats.Option) error {
	nc, err := nats.Connect(t.url, opts...)
	if err != nil {
		l.close()
		return connectError(t.url, err)
	}
	l.nc = nc
	switch {
	case t.prefix != "" && t.domain != "":
		err = cli.Usage(fmt.Errorf("there are an API prefix %q and a domain %q; use one of them", t.prefix, t.domain))
	case t.prefix != "":
		l.js, err = jetstream.NewWithAPIPrefix(nc, t.prefix)
	case t.domain != "":
		l.js, err = jetstream.NewWithDomain(nc, t.domain)
	default:
		l.js, err = jetstream.New(nc)
	}
	if err != nil {
		l.close()
	}
	return err
}

// connectError says what to do about a connection that was not made. It never
// shows the user's password in a URL.
func connectError(urls string, err error) error {
	var shown []string
	for _, u := range strings.Split(urls, ",") {
		if at := strings.LastIndex(u, "@"); at >= 0 {
			u = u[at+1:]
		}
		shown = append(shown, strings.TrimSpace(u))
	}
	at := strings.Join(shown, ", ")
	if errors.Is(err, nats.ErrNoServers) {
		return fmt.Errorf("no server answers at %s; start one, name another with --server, or use --embedded DIR: %w", at, err)
	}
	return fmt.Errorf("connect to %s: %w", at, err)
}

func connectOptions(command string, timeout time.Duration, log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.Name("jetpull " + command),
		nats.Timeout(timeout),
		nats.MaxReconnects(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("connection lost, connecting again", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Warn("connected again", "server", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if sub != nil {
				log.Error("connection", "subject", sub.Subject, "error", err)
				return
			}
			log.Error("connection", "error", err)
		}),
	}
}

// close ends the connection, and the server where it is ours.
func (l *link) close() {
	if l.nc != nil {
		// What was published, acknowledgements above all, goes out first.
		_ = l.nc.FlushTimeout(l.timeout)
		l.nc.Close()
	}
	if l.srv != nil {
		l.srv.Stop()
	}
}
