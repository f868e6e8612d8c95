// Package client contains the flags and the connection of commands that are clients of a NATS server.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
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
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/natsembed"
)

// TargetHelp is the help text about the choice of the server.
const TargetHelp = `fetch, consume, publish, info, streams, consumers, unpin, ps, cancel, dlq, partition,
console and exporter use the first of these servers: --embedded, --server or --context,
NATS_URL or NATS_CONTEXT in the environment, the context that is selected in the nats
command, and nats://127.0.0.1:4222. The flags for the server, and NATS_USER,
NATS_PASSWORD, NATS_TOKEN, NATS_CREDS, NATS_NKEY, NATS_CERT, NATS_KEY, NATS_CA and
NATS_TIMEOUT, are those of the nats command. broker and relay run a server of their own,
or use that of --nats or --context. feed needs no server.`

// Globals are the common flags of all commands that are clients of a server.
type Globals struct {
	Target Target
	Quiet  bool
}

// Register adds the flags to a command that is a client of a server. They have the same names as in the nats command. The systems have their
// own flags, so that no command has a flag that it ignores.
func (g *Globals) Register(cmd *cobra.Command) {
	t, flags := &g.Target, cmd.Flags()
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(otherNames[name], name))
	})
	flags.StringVarP(&t.URL, "server", "s", "", "`URL` of the server, or several, separated by commas (NATS_URL; also --nats)")
	if flags.Lookup("context") == nil { // the console has its own flag, which may be repeated
		flags.StringVar(&t.Context, "context", "", "`NAME` of a context of the nats command, or the absolute path of its file (NATS_CONTEXT)")
	}
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
	flags.BoolP("json", "j", false, "print JSON, one value per line; errors too")
	flags.BoolVarP(&g.Quiet, "quiet", "q", false, "print no progress and no summary on stderr, only problems")
	cli.Exclusive(cmd, "server", "context", "embedded")
	cli.Exclusive(cmd, "js-domain", "js-api-prefix")
	if flags.Lookup("raw") != nil {
		cli.Exclusive(cmd, "raw", "print0", "json")
	}
}

// defaultTimeout is the same as in the nats command.
const defaultTimeout = 5 * time.Second

// otherNames maps the names that the systems use for these flags.
var otherNames = map[string]string{"nats": "server", "domain": "js-domain"}

// Bar starts a progress bar on standard error for about total steps; 0 means unknown. With --quiet or --json, there is no bar.
func (g *Globals) Bar(cmd *cobra.Command, total int64) *progress.Bar {
	if g.Quiet || cli.JSON(cmd) {
		return nil
	}
	return progress.New(cmd.ErrOrStderr(), cmd.Name(), total)
}

// login holds the user's credentials, from flags and from the environment variables that the nats command reads. Its options come after those
// of a context and override them.
type login struct{ natscontext.Context }

func (l *login) register(flags *pflag.FlagSet) {
	flags.StringVar(&l.User, "user", "", "`NAME` of the user (NATS_USER)")
	flags.StringVar(&l.Password, "password", "", "`PASSWORD` of the user; prefer NATS_PASSWORD: other users of this machine can see the command line")
	flags.StringVar(&l.Token, "token", "", "`TOKEN` of the user; prefer NATS_TOKEN, for the same reason")
	flags.StringVar(&l.Creds, "creds", "", "`FILE` with user credentials (NATS_CREDS)")
	flags.StringVar(&l.NKey, "nkey", "", "`FILE` with an nkey's seed (NATS_NKEY)")
	flags.StringVar(&l.Cert, "tlscert", "", "`FILE` with a TLS certificate, in PEM (NATS_CERT)")
	flags.StringVar(&l.Key, "tlskey", "", "`FILE` with its key (NATS_KEY)")
	flags.StringVar(&l.CA, "tlsca", "", "`FILE` with CA certificates (NATS_CA)")
	flags.BoolVar(&l.TLSFirst, "tlsfirst", false, "begin with the TLS handshake")
}

// fromEnvironment fills in credentials that no flag sets. If a flag sets one kind of credentials, the variables of other kinds are ignored.
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

// Target specifies the server to use, as given by the user.
type Target struct {
	URL, Context, Embedded string
	Timeout                time.Duration
	// NoWait lets Open succeed even if no server answers. Requests then fail until one does.
	NoWait         bool
	login          login
	domain, prefix string
	port           int
	sync           natsembed.Sync
}

// Resolve fills in missing settings from the environment and from the context that is selected in the nats command.
func (t Target) Resolve() (_ Target, err error) {
	if text := os.Getenv("NATS_TIMEOUT"); text != "" && t.Timeout == defaultTimeout {
		if t.Timeout, err = cli.ParseDuration(text); err != nil {
			return t, cli.Usage(fmt.Errorf("NATS_TIMEOUT %q is not a duration such as 5s", text))
		}
	}
	if t.Embedded == "" {
		t.login.fromEnvironment()
	}
	switch l := &t.login; {
	case l.User == "" && l.Password != "":
		return t, cli.Usage(errors.New("--password needs --user"))
	case (l.Cert == "") != (l.Key == ""):
		return t, cli.Usage(errors.New("--tlscert and --tlskey need each other"))
	case t.Timeout <= 0:
		return t, cli.Usage(fmt.Errorf("--timeout %v is not more than 0", t.Timeout))
	case t.Embedded == "" && t.port != 0:
		return t, cli.Usage(fmt.Errorf("--embedded-port %d needs --embedded", t.port))
	case t.Embedded == "" && t.sync != 0 && t.sync != cli.DefaultSync:
		return t, cli.Usage(errors.New("--sync needs --embedded: another server syncs as its own configuration says"))
	case t.URL+t.Context+t.Embedded != "":
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

// schemes are the valid schemes of a server's URL.
var schemes = []string{"nats", "tls", "ws", "wss"}

// checkURLs returns an error for URLs that nats.go would misinterpret as host names.
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

// complete adds shell completion for the names of streams, consumers and contexts.
func (g *Globals) complete(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("context", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return natscontext.Names(), cobra.ShellCompDirectiveNoFileComp
	}) // the flag exists
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		names, _ := g.names(cmd, args) // a shell cannot show an error
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeTime limits the completion of a name, because the user waits for it with a half-typed line.
const completeTime = 2 * time.Second

// names returns the names of all streams, or of the consumers of the stream args[0]. The next word of the usage line determines which.
func (g *Globals) names(cmd *cobra.Command, args []string) (names []string, err error) {
	words, _, _ := cli.Words(cmd.Use)
	if len(args) >= len(words) || words[len(args)] != "STREAM" && words[len(args)] != "CONSUMER" {
		return nil, nil
	}
	t := g.Target
	t.Timeout = completeTime
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	l, err := t.Open(ctx, "complete", slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	list := jetstream.ConsumerNameLister(l.JS.StreamNames(ctx))
	if len(args) > 0 {
		s, err := l.JS.Stream(ctx, args[0])
		if err != nil {
			return nil, err
		}
		list = s.ConsumerNames(ctx)
	}
	for name := range list.Name() {
		names = append(names, name)
	}
	return names, list.Err()
}
