package client

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// Globals are the flags that all clients of a server have.
type Globals struct {
	Target Target
	JSON   bool
	Quiet  bool
}

// Register adds the flags to a command that is a client of a server, with the names that the nats command has for them. The
// systems have their own: a flag that a command would ignore is not there.
func (g *Globals) Register(flags *pflag.FlagSet) {
	t := &g.Target
	flags.SetNormalizeFunc(otherNames)
	flags.VarP(&present{&t.URL, "a URL"}, "server", "s", "`URL` of the server; may be a list with commas (NATS_URL; also --nats)")
	flags.Var(&present{&t.Context, "a name"}, "context", "`NAME` of a context of the nats command, or the absolute path of its file (NATS_CONTEXT)")
	flags.Var(&present{&t.Embedded, "a folder"}, "embedded", "run a server in this process, with its store in `DIR`")
	flags.IntVar(&t.port, "embedded-port", 0, "`PORT` of that server on 127.0.0.1; 0 for any that is free")
	cli.Range(flags, "embedded-port", &t.port, 0, math.MaxUint16)
	t.login.register(flags)
	flags.StringVar(&t.domain, "js-domain", "", "JetStream `DOMAIN` (also --domain)")
	flags.StringVar(&t.prefix, "js-api-prefix", "", "`PREFIX` of the JetStream API")
	flags.DurationVar(&t.Timeout, "timeout", defaultTimeout, "limit for connecting and for a request (NATS_TIMEOUT)")
	flags.BoolVarP(&g.JSON, "json", "j", false, "print JSON, one value per line; errors too")
	flags.BoolVarP(&g.Quiet, "quiet", "q", false, "print no progress and no summary on stderr; problems are printed all the same")
}

// present is the value of a flag that is not empty: one that a shell's unset variable has left empty would mean another server.
type present struct {
	text *string
	what string
}

// Set refuses an empty value.
func (p *present) Set(text string) error {
	if text == "" {
		return fmt.Errorf("it is empty; give %s, or leave it out", p.what)
	}
	*p.text = text
	return nil
}

// String is the value.
func (p *present) String() string { return *p.text }

// Type belongs to the interface; nothing shows it.
func (p *present) Type() string { return "string" }

// defaultTimeout is that of the nats command.
const defaultTimeout = 5 * time.Second

// otherNames lets the flags of the systems be used here too.
func otherNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "nats":
		name = "server"
	case "domain":
		name = "js-domain"
	}
	return pflag.NormalizedName(name)
}

// Warner reports problems on errOut that do not end the command.
func (g *Globals) Warner(errOut io.Writer) func(string) {
	return func(text string) { cli.Warn(errOut, g.JSON, text) }
}
