package client

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
)

// login is who the user is, by flags and by the variables that the nats command reads. Its options come after a context's, and
// what they say takes its place.
type login struct{ natscontext.Context }

func (l *login) register(flags *pflag.FlagSet) {
	flags.StringVar(&l.User, "user", "", "`NAME` of the user (NATS_USER)")
	flags.StringVar(&l.Password, "password", "", "`PASSWORD` of the user; others on this machine see it in the list of processes, so better NATS_PASSWORD")
	flags.StringVar(&l.Token, "token", "", "`TOKEN` of the user; seen as a password is, so better NATS_TOKEN")
	flags.StringVar(&l.Creds, "creds", "", "`FILE` with user credentials (NATS_CREDS)")
	flags.StringVar(&l.NKey, "nkey", "", "`FILE` with an nkey's seed (NATS_NKEY)")
	flags.StringVar(&l.Cert, "tlscert", "", "`FILE` with a TLS certificate, in PEM (NATS_CERT)")
	flags.StringVar(&l.Key, "tlskey", "", "`FILE` with its key (NATS_KEY)")
	flags.StringVar(&l.CA, "tlsca", "", "`FILE` with the certificates of authorities (NATS_CA)")
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

// called is how a user sets what a context has under a key.
func called(key string) string { return "--" + key + " (NATS_" + strings.ToUpper(key) + ")" }

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
