package cli

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/internal/mask"
)

// MaxLong is the longest duration that a flag takes: a longer one is a mistake in units.
const MaxLong = 365 * 24 * time.Hour

// Range has a flag refuse what is not in least..most.
func Range[N cmp.Ordered](flags *pflag.FlagSet, name string, value *N, least, most N) {
	Checked(flags, name, func() error { return inRange(name, *value, least, most) })
}

// Lasting has a flag refuse durations that are shorter than least, or so long that they are a mistake.
func Lasting(flags *pflag.FlagSet, name string, d *time.Duration, least time.Duration) {
	Range(flags, name, d, least, MaxLong)
}

// Interval adds the flag that says how often a view asks.
func Interval(flags *pflag.FlagSet, d *time.Duration) {
	flags.DurationVarP(d, "interval", "i", time.Second, "time between two requests, at least 100ms")
	Lasting(flags, "interval", d, 100*time.Millisecond)
}

// moment is the value of a flag with a time.
type moment struct {
	*time.Time
	past bool // a duration is how long ago it was
}

// Time adds a flag for a time.
func Time(flags *pflag.FlagSet, at *time.Time, name, usage string) {
	flags.Var(&moment{at, false}, name, usage+" `TIME`, such as 2027-01-31T18:00:00Z")
}

// Future is Time, and refuses a time in the past.
func Future(flags *pflag.FlagSet, at *time.Time, name, usage string) {
	Time(flags, at, name, usage)
	Checked(flags, name, func() error {
		if !at.After(time.Now()) {
			return fmt.Errorf("--%s %s is in the past; give a later time", name, at.Format(time.RFC3339))
		}
		return nil
	})
}

// Past adds a flag for a time, or how long ago that was.
func Past(flags *pflag.FlagSet, at *time.Time, name, usage string) {
	flags.Var(&moment{at, true}, name, usage+" `TIME`, such as 2026-01-02T15:04:05Z, or 1h for an hour ago")
}

// String implements pflag.Value.
func (m *moment) String() string {
	if m.Time == nil || m.IsZero() {
		return ""
	}
	return m.UTC().Format(time.RFC3339Nano)
}

// Set implements pflag.Value.
func (m *moment) Set(text string) error {
	at, err := time.Parse(time.RFC3339, text)
	ago, noDuration := time.ParseDuration(text)
	switch {
	case m.past && noDuration == nil && ago >= 0:
		at = time.Now().Add(-ago)
	case m.past && err != nil:
		return errors.New("it is neither a time such as 2026-01-02T15:04:05Z nor a duration such as 1h")
	case err != nil:
		return errors.New("it is not a time such as 2027-01-31T18:00:00Z")
	}
	*m.Time = at
	return nil
}

// Type implements pflag.Value.
func (*moment) Type() string { return "time" }

// NotEmpty has a flag refuse an empty value, as of a shell's unset variable: it would mean another server, or more, than the user thinks of.
func NotEmpty(flags *pflag.FlagSet, name, what string) {
	value := flags.Lookup(name).Value
	Checked(flags, name, func() error {
		if value.String() == "" {
			return fmt.Errorf("--%s: it is empty; give %s, or leave it out", name, what)
		}
		return nil
	})
}

func inRange[N cmp.Ordered](name string, value, least, most N) error {
	if value < least || value > most {
		return fmt.Errorf("--%s %v is not in %v..%v", name, value, least, most)
	}
	return nil
}

// Checked has a flag refuse values for which check, which is called after each has been read, returns an error.
func Checked(flags *pflag.FlagSet, name string, check func() error) {
	f := flags.Lookup(name)
	f.Value = &checked{f.Value, check}
	if f.DefValue == "0s" || f.DefValue == "[]" {
		f.DefValue = "" // the help shows no default that is nothing
	}
}

// checked is the value of a flag with a check.
type checked struct {
	pflag.Value
	check func() error
}

// refusal is the error of a check. It names the flag and the value, so it stands for what pflag makes of it.
type refusal struct{ error }

// Set reads and checks a value.
func (c *checked) Set(text string) error {
	if err := c.Value.Set(text); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return refusal{err}
	}
	return nil
}

// Given are the values whose flags were given.
func Given[V any](flags *pflag.FlagSet, values map[string]V) (given []V) {
	for name, value := range values {
		if flags.Changed(name) {
			given = append(given, value)
		}
	}
	return given
}

// CheckURL refuses what is not the URL of an HTTP server.
func CheckURL(flag, text string) error {
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Usage(fmt.Errorf("%s %q is not a URL such as http://127.0.0.1:8080", flag, mask.URL(text)))
	}
	return nil
}

// HeaderFlag adds the flag --header, which may be given for several headers.
func HeaderFlag(flags *pflag.FlagSet, headers *[]string) {
	flags.StringArrayVarP(headers, "header", "H", nil, "add the header `'NAME: VALUE'`; may be given several times")
}

// Header is the name and the value of a header as --header has it.
func Header(text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || name == "" {
		return "", "", Usage(fmt.Errorf("--header %q is not 'Name: value'", text))
	}
	return name, value, nil
}

// Authorities are the system's certificate authorities, with those of a file in PEM.
func Authorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return roots, nil
}
