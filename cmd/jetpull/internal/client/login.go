package client

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
)

// login is who the user is, by flags and by the variables that the nats command reads.
type login struct {
	user, password, token, creds, nkey string
	cert, key, ca                      string
	tlsFirst                           bool
}

func (l *login) register(flags *pflag.FlagSet) {
	flags.StringVar(&l.user, "user", "", "`NAME` of the user (NATS_USER)")
	flags.StringVar(&l.password, "password", "", "`PASSWORD` of the user; others on this machine see it in the list of processes, so better NATS_PASSWORD")
	flags.StringVar(&l.token, "token", "", "`TOKEN` of the user; seen as a password is, so better NATS_TOKEN")
	flags.StringVar(&l.creds, "creds", "", "`FILE` with user credentials (NATS_CREDS)")
	flags.StringVar(&l.nkey, "nkey", "", "`FILE` with an nkey's seed (NATS_NKEY)")
	flags.StringVar(&l.cert, "tlscert", "", "`FILE` with a TLS certificate, in PEM (NATS_CERT)")
	flags.StringVar(&l.key, "tlskey", "", "`FILE` with its key (NATS_KEY)")
	flags.StringVar(&l.ca, "tlsca", "", "`FILE` with the certificates of authorities (NATS_CA)")
	flags.BoolVar(&l.tlsFirst, "tlsfirst", false, "begin with the TLS handshake")
}

// fromEnvironment fills in what no flag has said. One who logs in by a flag of another kind is not also what a variable says.
func (l *login) fromEnvironment() {
	if l.user == "" && l.token == "" && l.creds == "" && l.nkey == "" {
		l.user, l.token, l.creds, l.nkey = os.Getenv("NATS_USER"), os.Getenv("NATS_TOKEN"), os.Getenv("NATS_CREDS"), os.Getenv("NATS_NKEY")
	}
	if l.user != "" {
		l.password = cmp.Or(l.password, os.Getenv("NATS_PASSWORD"))
	}
	if l.cert == "" && l.key == "" {
		l.cert, l.key = os.Getenv("NATS_CERT"), os.Getenv("NATS_KEY")
	}
	l.ca = cmp.Or(l.ca, os.Getenv("NATS_CA"))
}

func (l *login) check() error {
	switch {
	case l.user == "" && l.password != "":
		return cli.Usage(errors.New("--password needs --user"))
	case (l.cert == "") != (l.key == ""):
		return cli.Usage(errors.New("--tlscert and --tlskey need each other"))
	}
	return nil
}

// options are those of a connection. They come after a context's, and what they say takes its place.
func (l *login) options() ([]nats.Option, error) {
	var opts []nats.Option
	path := natscontext.ExpandHome
	if l.user != "" {
		opts = append(opts, nats.UserInfo(l.user, l.password))
	}
	if l.token != "" {
		opts = append(opts, nats.Token(l.token))
	}
	if l.creds != "" {
		// The connection would say of the file no more than that.
		if _, err := os.ReadFile(path(l.creds)); err != nil {
			return nil, fmt.Errorf("--creds (NATS_CREDS) %s: %w", l.creds, err)
		}
		opts = append(opts, nats.UserCredentials(path(l.creds)))
	}
	if l.nkey != "" {
		o, err := nats.NkeyOptionFromSeed(path(l.nkey))
		if err != nil {
			return nil, fmt.Errorf("--nkey (NATS_NKEY) %s: %w", l.nkey, err)
		}
		opts = append(opts, o)
	}
	if l.cert != "" {
		opts = append(opts, nats.ClientCert(path(l.cert), path(l.key)))
	}
	if l.ca != "" {
		opts = append(opts, nats.RootCAs(path(l.ca)))
	}
	if l.tlsFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts, nil
}

// timeoutFromEnvironment is NATS_TIMEOUT, where no flag says how long.
func timeoutFromEnvironment(d time.Duration) (time.Duration, error) {
	text := os.Getenv("NATS_TIMEOUT")
	if text == "" || d != defaultTimeout {
		return d, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, cli.Usage(fmt.Errorf("NATS_TIMEOUT: %w", err))
	}
	return d, nil
}
