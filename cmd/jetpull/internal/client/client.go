// Package client has the flags and the connection of all commands that are clients of a NATS server.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/natsembed"
)

// TargetHelp says which server is used.
const TargetHelp = `fetch, consume, publish, info, streams, consumers, unpin, ps, cancel, dlq, partition, console and
exporter use the first of these servers: --embedded, --server or --context, NATS_URL or NATS_CONTEXT in
the environment, the context that is selected in the nats command, and
nats://127.0.0.1:4222. The flags for the server, and NATS_USER, NATS_PASSWORD,
NATS_TOKEN, NATS_CREDS, NATS_NKEY, NATS_CERT, NATS_KEY, NATS_CA and NATS_TIMEOUT, are
those of the nats command. broker and relay run a server of their own, or use that of
--nats. feed needs no server.`

// Globals are the flags that all clients of a server have.
type Globals struct {
	Target Target
	JSON   bool
	Quiet  bool
}

// Register adds the flags to a command that is a client of a server, with the names that the nats command has for them. The
// systems have their own: a flag that a command would ignore is not there.
func (g *Globals) Register(cmd *cobra.Command) {
	t, flags := &g.Target, cmd.Flags()
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(otherNames[name], name))
	})
	flags.StringVarP(&t.URL, "server", "s", "", "`URL` of the server, or several, separated by commas (NATS_URL; also --nats)")
	flags.StringVar(&t.Context, "context", "", "`NAME` of a context of the nats command, or the absolute path of its file (NATS_CONTEXT)")
	flags.StringVar(&t.Embedded, "embedded", "", "run a server in this process, with its store in `DIR`")
	cli.NotEmpty(flags, "server", "a URL")
	cli.NotEmpty(flags, "context", "a name")
	cli.NotEmpty(flags, "embedded", "a folder")
	cli.Int(flags, &t.port, "embedded-port", 0, 0, math.MaxUint16, "`PORT` of that server on 127.0.0.1; 0 for any free port")
	cli.Sync(flags, &t.sync)
	t.login.register(flags)
	g.complete(cmd)
	flags.StringVar(&t.domain, "js-domain", "", "JetStream `DOMAIN` (also --domain)")
	flags.StringVar(&t.prefix, "js-api-prefix", "", "`PREFIX` of the JetStream API")
	flags.DurationVar(&t.Timeout, "timeout", defaultTimeout, "limit for connecting and for a request (NATS_TIMEOUT)")
	flags.BoolVarP(&g.JSON, "json", "j", false, "print JSON, one value per line; errors too")
	flags.BoolVarP(&g.Quiet, "quiet", "q", false, "print no progress and no summary on stderr, only problems")
	cli.Exclusive(cmd, "server", "context", "embedded")
	cli.Exclusive(cmd, "js-domain", "js-api-prefix")
	if flags.Lookup("raw") != nil {
		cli.Exclusive(cmd, "raw", "print0", "json")
	}
}

// defaultTimeout is that of the nats command.
const defaultTimeout = 5 * time.Second

// otherNames lets the flags of the systems be used here too.
var otherNames = map[string]string{"nats": "server", "domain": "js-domain"}

// Bar starts a bar on a command's standard error for a run of total steps; open says that it may have more. It shows nothing
// with --quiet and --json.
func (g *Globals) Bar(cmd *cobra.Command, total int64, open bool) *progress.Bar {
	switch {
	case g.Quiet || g.JSON:
		return nil
	case open:
		return progress.NewOpen(cmd.ErrOrStderr(), cmd.Name(), total)
	}
	return progress.New(cmd.ErrOrStderr(), cmd.Name(), total)
}

// login is who the user is, by flags and by the variables that the nats command reads. Its options come after a context's, and
// what they say takes its place.
type login struct{ natscontext.Context }

func (l *login) register(flags *pflag.FlagSet) {
	flags.StringVar(&l.User, "user", "", "`NAME` of the user (NATS_USER)")
	flags.StringVar(&l.Password, "password", "", "`PASSWORD` of the user; prefer NATS_PASSWORD, because other users of this machine can see the "+
		"command line")
	flags.StringVar(&l.Token, "token", "", "`TOKEN` of the user; prefer NATS_TOKEN, for the same reason")
	flags.StringVar(&l.Creds, "creds", "", "`FILE` with user credentials (NATS_CREDS)")
	flags.StringVar(&l.NKey, "nkey", "", "`FILE` with an nkey's seed (NATS_NKEY)")
	flags.StringVar(&l.Cert, "tlscert", "", "`FILE` with a TLS certificate, in PEM (NATS_CERT)")
	flags.StringVar(&l.Key, "tlskey", "", "`FILE` with its key (NATS_KEY)")
	flags.StringVar(&l.CA, "tlsca", "", "`FILE` with CA certificates (NATS_CA)")
	flags.BoolVar(&l.TLSFirst, "tlsfirst", false, "begin with the TLS handshake")
}

// fromEnvironment fills in what no flag has said. One who logs in by a flag of another kind is not also what a variable says.
func (l *login) fromEnvironment() {
	if l.User == "" && l.Token == "" && l.Creds == "" && l.NKey == "" {
		l.User, l.Token, l.Creds, l.NKey = os.Getenv("NATS_USER"), os.Getenv("NATS_TOKEN"), os.Getenv("NATS_CREDS"), os.Getenv("NATS_NKEY")
	}
	if l.User != "" {
		l.Password = cmp.Or(l.Password, os.Getenv("NATS_PASSWORD"))
	}
	if l.Cert == "" && l.Key == "" {
		l.Cert, l.Key = os.Getenv("NATS_CERT"), os.Getenv("NATS_KEY")
	}
	l.CA = cmp.Or(l.CA, os.Getenv("NATS_CA"))
}

func (l *login) check() error {
	switch {
	case l.User == "" && l.Password != "":
		return cli.Usage(errors.New("--password needs --user"))
	case (l.Cert == "") != (l.Key == ""):
		return cli.Usage(errors.New("--tlscert and --tlskey need each other"))
	}
	return nil
}

// Target is which server to use, as the user said it.
type Target struct {
	URL, Context, Embedded string
	Timeout                time.Duration
	// NoWait has Open succeed while no server answers: each request fails until one does.
	NoWait         bool
	login          login
	domain, prefix string
	port           int
	sync           natsembed.Sync
}

// Link is a connection to the server, with the server itself where it runs in
// this process.
type Link struct {
	NC      *nats.Conn
	JS      jetstream.JetStream
	Server  *natsembed.Server
	Timeout time.Duration
	// Allowed ends when the server refuses what the command sends or subscribes to. Its cause says what.
	Allowed context.Context
	deny    context.CancelCauseFunc
}

// Resolve fills in what the user did not say, from the environment and the nats
// command's selection.
func (t Target) Resolve() (_ Target, err error) {
	if text := os.Getenv("NATS_TIMEOUT"); text != "" && t.Timeout == defaultTimeout {
		if t.Timeout, err = cli.ParseDuration(text); err != nil {
			return t, cli.Usage(fmt.Errorf("NATS_TIMEOUT %q is not a duration such as 5s", text))
		}
	}
	if t.Embedded == "" {
		t.login.fromEnvironment()
	}
	if err := t.login.check(); err != nil {
		return t, err
	}
	if t.Timeout <= 0 {
		return t, cli.Usage(fmt.Errorf("--timeout %v is not more than 0", t.Timeout))
	}
	if t.Embedded == "" && t.port != 0 {
		return t, cli.Usage(fmt.Errorf("--embedded-port %d needs --embedded", t.port))
	}
	if t.Embedded == "" && t.sync != 0 && t.sync != cli.DefaultSync {
		return t, cli.Usage(errors.New("--sync needs --embedded: another server syncs as its own configuration says"))
	}
	if t.URL+t.Context+t.Embedded != "" {
		return t, checkURLs("--server", t.URL)
	}
	if t.URL = os.Getenv("NATS_URL"); t.URL != "" {
		return t, checkURLs("NATS_URL", t.URL)
	}
	if t.Context = os.Getenv("NATS_CONTEXT"); t.Context != "" {
		return t, nil
	}
	t.Context, err = natscontext.Selected()
	return t, err
}

// Open connects as the flags say. Problems of the connection are written to errOut.
func (t Target) Open(ctx context.Context, command string, errOut io.Writer) (*Link, error) {
	t, err := t.Resolve()
	if err != nil {
		return nil, err
	}
	loginOptions, err := t.login.Options()
	if err != nil {
		return nil, err
	}
	log := cli.Log(errOut, false)
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

// OpenExisting connects for a command that finds nothing in a store that is new: it makes none.
func (g *Globals) OpenExisting(cmd *cobra.Command) (*Link, error) {
	dir := g.Target.Embedded
	if _, err := os.Stat(dir); dir != "" && errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--embedded %s: there is no such folder; name the one of a server that has run", dir)
	}
	return g.Target.Open(cmd.Context(), strings.TrimPrefix(cmd.CommandPath(), "jetpull "), cmd.ErrOrStderr())
}

// With runs f with a connection to an existing server, within the timeout for requests.
func (g *Globals) With(cmd *cobra.Command, f func(context.Context, *Link) error) error {
	l, err := g.OpenExisting(cmd)
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Within(cmd.Context(), func(ctx context.Context) error { return f(ctx, l) })
}

// Within runs f within the timeout for requests, and ends it when the server refuses one.
func (l *Link) Within(ctx context.Context, f func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer context.AfterFunc(l.Allowed, cancel)()
	return l.Explain(ctx, f(limited))
}

// Watch calls look at once and then at each interval until interrupted, each time within the timeout for requests, and has what it has seen
// shown. An error of a look is reported, and the next one follows, unless it is the first or says that the stream or the consumer is gone.
func (g *Globals) Watch(cmd *cobra.Command, interval time.Duration, look func(context.Context, *Link) (show func() error, err error)) error {
	l, err := g.OpenExisting(cmd)
	if err != nil {
		return err
	}
	defer l.Close()
	first := true
	return cli.Every(cmd.Context(), interval, func() error {
		var show func() error
		err := l.Within(cmd.Context(), func(ctx context.Context) (err error) {
			show, err = look(ctx, l)
			return err
		})
		gone := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
		switch {
		case err == nil:
			first = false
			return show()
		case first, gone, cmd.Context().Err() != nil:
			return err
		}
		cli.Warn(cmd.ErrOrStderr(), g.JSON, cli.Plain(err))
		return nil
	})
}

func (l *Link) connect(t Target, opts []nats.Option) (err error) {
	if t.NoWait {
		opts = append(opts, nats.ReconnectBufSize(-1)) // a request that has failed is not made later
	}
	l.NC, err = nats.Connect(t.URL, opts...)
	if t.NoWait && err != nil && noAnswer(err) {
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

// noAnswer reports whether no server answers. One that refuses a login has answered.
func noAnswer(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return errors.Is(err, nats.ErrNoServers) || ok && op.Op == "dial"
}

// connectError says what to do about a connection that was not made. It
// shows no password.
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

// schemes are those of a server's URL.
var schemes = []string{"nats", "tls", "ws", "wss"}

// checkURLs refuses what nats.go would take for the name of a host.
func checkURLs(from, urls string) error {
	for u := range strings.SplitSeq(urls, ",") {
		u = strings.TrimSpace(u)
		scheme, _, ok := strings.Cut(u, "://")
		if ok && !slices.Contains(schemes, strings.ToLower(scheme)) {
			return cli.Usage(fmt.Errorf("%s: scheme %q is none of %s", from, scheme, strings.Join(schemes, ", ")))
		}
		if !ok && urls != "" {
			u = "nats://" + u
		}
		if parsed, err := url.Parse(u); urls != "" && (err != nil || parsed.Hostname() == "") {
			return cli.Usage(fmt.Errorf("%s %q is not the URL of a server such as %s", from, cli.Shown(urls), nats.DefaultURL))
		}
	}
	return nil
}

// EnsureStream creates a stream, unless one of its name exists. It returns the subjects of one that exists, nil for a new one.
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

// Close ends the connection, and the server where it is ours.
func (l *Link) Close() {
	if l.NC != nil {
		// Published messages, above all acknowledgements, are sent first.
		_ = l.NC.FlushTimeout(l.Timeout)
		l.NC.Close()
	}
	if l.Server != nil {
		l.Server.Stop()
	}
}
