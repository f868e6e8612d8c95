package cli

import (
	"cmp"
	"fmt"
	"net/url"
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
