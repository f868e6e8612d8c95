package cli

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/natsembed"
)

// MaxLong is the maximum duration of a flag. A longer one is probably a mistake in units.
const MaxLong = 365 * 24 * time.Hour

// Range makes a flag reject values that are not in least..most.
func Range[N cmp.Ordered](flags *pflag.FlagSet, name string, value *N, least, most N) {
	Checked(flags, name, func() error {
		if *value < least || *value > most {
			return fmt.Errorf("--%s %v is not in %v..%v", name, *value, least, most)
		}
		return nil
	})
}

// Int adds a flag for a number in least..most.
func Int(flags *pflag.FlagSet, n *int, name string, value, least, most int, usage string) {
	flags.IntVar(n, name, value, usage)
	Range(flags, name, n, least, most)
}

// Duration adds a flag for a duration in least..[MaxLong].
func Duration(flags *pflag.FlagSet, d *time.Duration, name string, value, least time.Duration, usage string) {
	flags.DurationVar(d, name, value, usage)
	Range(flags, name, d, least, MaxLong)
}

// Interval adds the flag --interval, the time between two requests of a view.
func Interval(flags *pflag.FlagSet, d *time.Duration) {
	flags.DurationVarP(d, "interval", "i", time.Second, "time between two requests, at least 100ms")
	Range(flags, "interval", d, 100*time.Millisecond, MaxLong)
}

// OneOf adds a flag whose value is one of words.
func OneOf(flags *pflag.FlagSet, word *string, name, value, usage string, words ...string) {
	flags.StringVar(word, name, value, usage)
	Checked(flags, name, func() error {
		if !slices.Contains(words, *word) {
			return fmt.Errorf("--%s %q is none of %s", name, *word, strings.Join(words, ", "))
		}
		return nil
	})
}

// NotEmpty makes a flag reject an empty value, as from an unset shell variable. The value would select another server, or more items, than intended.
func NotEmpty(flags *pflag.FlagSet, name, what string) {
	value := flags.Lookup(name).Value
	Checked(flags, name, func() error {
		if value.String() == "" {
			return fmt.Errorf("--%s: it is empty; give %s, or leave it out", name, what)
		}
		return nil
	})
}

// value is a flag's value with a replaced Set.
type value struct {
	pflag.Value
	set func(text string) error
}

// Set parses and sets the value.
func (v value) Set(text string) error { return v.set(text) }

// refusal is an error that names the flag and the value. It replaces pflag's error, which would repeat them.
type refusal struct{ error }

// Checked makes a flag call check after each value is set. If check returns an error, the value is rejected.
func Checked(flags *pflag.FlagSet, name string, check func() error) {
	f := flags.Lookup(name)
	set := f.Value.Set
	f.Value = value{f.Value, func(text string) error {
		if err := set(text); err != nil {
			return err
		}
		if err := check(); err != nil {
			return refusal{err}
		}
		return nil
	}}
}

// Exclusive makes a command reject any two of these flags together.
func Exclusive(cmd *cobra.Command, names ...string) {
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		var given []string
		for _, name := range names {
			if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
				text := "--" + name
				if f.Value.Type() != "bool" {
					text += " " + Shown(f.Value.String())
				}
				given = append(given, text)
			}
		}
		switch {
		case len(given) > 1:
			return fmt.Errorf("%s exclude each other; give one of them", strings.Join(given, " and "))
		case before != nil:
			return before(cmd, args)
		}
		return nil
	}
}

// Shown returns a flag's value for an error text. It masks what could be a password in a URL.
func Shown(value string) string {
	if strings.Contains(value, "@") {
		return mask.URL(value)
	}
	return value
}

// nearest returns the flag that a mistyped name probably means, or "". It uses cobra's measure for commands.
func nearest(flags *pflag.FlagSet, name string) string {
	all := &cobra.Command{SuggestionsMinimumDistance: min(2, 1+len(name)/4)}
	flags.VisitAll(func(f *pflag.Flag) {
		all.AddCommand(&cobra.Command{Use: f.Name, Hidden: f.Hidden, Run: func(*cobra.Command, []string) {}})
	})
	if near := all.SuggestionsFor(name); len(near) > 0 && len(name) > 1 {
		return near[0]
	}
	return ""
}

// forms describes the values of flags, by type.
var forms = map[string]string{
	"int": "a whole number", "float64": "a number", "bool": "true or false", "duration": "a duration such as 30s, 5m or 1d",
	"time": "a time such as 2027-01-31T18:00:00Z", "durationSlice": "a list of durations such as 1s,5s,30s",
}

// refused returns the error of an unknown flag, with a suggestion, or of a flag with an invalid value.
func refused(cmd *cobra.Command, err error) error {
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if near := nearest(cmd.Flags(), cmp.Or(missing.GetSpecifiedShortnames(), missing.GetSpecifiedName())); near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	}
	if own, ok := errors.AsType[refusal](err); ok {
		return own.error
	}
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	flag := wrong.GetFlag()
	if form, ok := forms[flag.Value.Type()]; ok {
		return fmt.Errorf("--%s %q is not %s", flag.Name, Shown(wrong.GetValue()), form)
	}
	return fmt.Errorf("--%s %q: %w", flag.Name, Shown(wrong.GetValue()), wrong.Unwrap())
}

// Given returns the values of the flags that were given. A boolean flag that is false counts as not given.
func Given[V any](flags *pflag.FlagSet, values map[string]V) (given []V) {
	for name, value := range values {
		f := flags.Lookup(name)
		off := f.Value.Type() == "bool" && f.Value.String() == "false"
		if f.Changed && !off {
			given = append(given, value)
		}
	}
	return given
}

// CheckURL returns an error if text is not the URL of an HTTP server. An empty text is allowed: the flag was not given.
func CheckURL(flag, text string) error {
	if u, err := url.Parse(text); text != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return Usage(fmt.Errorf("%s %q is not a URL such as http://127.0.0.1:8080", flag, mask.URL(text)))
	}
	return nil
}

// HeaderFlag adds the flag --header. It calls add for each header.
func HeaderFlag(flags *pflag.FlagSet, add func(name, value string)) {
	flags.FuncP("header", "H", "add the header `'NAME: VALUE'`; may be given several times", func(text string) error {
		name, value, ok := strings.Cut(text, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return refusal{fmt.Errorf("--header %q is not 'Name: value'", text)}
		}
		add(name, strings.TrimSpace(value))
		return nil
	})
}

// CheckName returns an error if name cannot be the name of a stream or a consumer.
func CheckName(of, name string) error {
	if name == "" || strings.ContainsAny(name, " \t\r\n\f.*>/\\") {
		return Usage(fmt.Errorf("%q is not the name of a %s: it must not be empty nor contain spaces, dots, slashes, * or >", name, of))
	}
	return nil
}

// Words returns the words of a usage line that stand for arguments, in order, and the minimum and maximum number of arguments. It ignores the
// words after [flags].
func Words(use string) (words []string, least, most int) {
	use, _, _ = strings.Cut(use, " [flags]")
	for _, word := range strings.Fields(use)[1:] {
		words = append(words, strings.Trim(word, "[]."))
		most++
		if !strings.HasPrefix(word, "[") {
			least++
		}
		if strings.HasSuffix(word, "...]") {
			most = math.MaxInt
		}
	}
	return words, least, most
}

// named maps the words of usage lines that stand for names of streams and consumers.
var named = map[string]string{"STREAM": "stream", "ORIGIN": "stream", "CONSUMER": "consumer"}

// Arguments checks the number of arguments by the usage line. None may be empty, as from an unset shell variable. From STREAM on, it checks names.
func Arguments(cmd *cobra.Command, args []string) error {
	words, least, most := Words(cmd.Use)
	if len(args) < least || len(args) > most || slices.Contains(args, "") {
		return fmt.Errorf("usage: %s, but the arguments are %q", cmd.UseLine(), args)
	}
	if least == 0 || words[0] != "STREAM" {
		return nil
	}
	for i, arg := range args {
		if of := named[words[min(i, len(words)-1)]]; of != "" {
			if err := CheckName(of, arg); err != nil {
				return err
			}
		}
	}
	return nil
}

// Subject makes a flag reject values that are not subjects, or that have wildcards if wildcards is false.
func Subject(flags *pflag.FlagSet, name string, value *string, wildcards bool) {
	Checked(flags, name, func() error {
		switch {
		case !server.IsValidSubject(*value):
			return fmt.Errorf("--%s %q is not a subject", name, *value)
		case !wildcards && !server.IsValidPublishSubject(*value):
			return fmt.Errorf("--%s %q is not a subject to publish to", name, *value)
		}
		return nil
	})
}

var dayUnit = regexp.MustCompile(`(\d+(?:\.\d+)?)([dw])`)

// inHours rewrites the days and weeks of a duration as hours, which [time.ParseDuration] accepts.
func inHours(text string) string {
	return dayUnit.ReplaceAllStringFunc(text, func(part string) string {
		last := len(part) - 1
		n, _ := strconv.ParseFloat(part[:last], 64) // digits
		hours := n * 24
		if part[last] == 'w' {
			hours *= 7
		}
		return strconv.FormatFloat(hours, 'f', -1, 64) + "h"
	})
}

// ParseDuration is like [time.ParseDuration], but also accepts days and weeks, as in 1d12h.
func ParseDuration(text string) (time.Duration, error) { return time.ParseDuration(inHours(text)) }

// complete makes flags for durations accept days and weeks, and hides empty defaults in the help.
func complete(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if kind, set := f.Value.Type(), f.Value.Set; kind == "duration" || kind == "durationSlice" {
			f.Value = value{f.Value, func(text string) error { return set(inHours(text)) }}
		}
		if _, slice := f.Value.(pflag.SliceValue); !slice && (f.DefValue == "0s" || f.DefValue == "[]") { // pflag hides [] of its own slices
			f.DefValue = ""
		}
	})
}

// DefaultSync is the sync interval of a server with a user's data. Its clients publish over TCP, so they cannot wait for a group sync.
const DefaultSync = natsembed.Sync(2 * time.Second)

// Sync adds the flag --sync for an embedded server.
func Sync(flags *pflag.FlagSet, sync *natsembed.Sync) {
	*sync = DefaultSync
	const usage = "`WHEN` the embedded server syncs to disk: each, which is before it acknowledges a message, or an interval"
	flags.Func("sync", usage, func(text string) error {
		given, err := natsembed.ParseSync(text)
		if err != nil || given == natsembed.SyncGroup {
			return fmt.Errorf("it is neither each nor an interval of at least 10ms, such as %v", time.Duration(DefaultSync))
		}
		*sync = given
		return nil
	})
	flags.Lookup("sync").DefValue = time.Duration(DefaultSync).String()
}

// Synced returns a text about what an embedded server loses in a power failure.
func Synced(sync natsembed.Sync) string {
	if sync == natsembed.SyncEach {
		return "It syncs each message to disk before it acknowledges it."
	}
	return fmt.Sprintf("It syncs to disk every %v: a power failure loses the messages since the last sync.", time.Duration(sync))
}

// Time adds a flag for a time in RFC 3339.
func Time(flags *pflag.FlagSet, at *time.Time, name, usage string) {
	flags.TimeVar(at, name, time.Time{}, []string{time.RFC3339}, usage+" `TIME`, such as 2027-01-31T18:00:00Z")
}

// Future adds a flag for a time in the future.
func Future(flags *pflag.FlagSet, at *time.Time, name, usage string) {
	Time(flags, at, name, usage)
	Checked(flags, name, func() error {
		if !at.After(time.Now()) {
			return fmt.Errorf("--%s %s is in the past; give a later time", name, at.Format(time.RFC3339))
		}
		return nil
	})
}

// Past adds a flag for a time, or for a duration before now.
func Past(flags *pflag.FlagSet, at *time.Time, name, usage string) {
	Time(flags, at, name, usage)
	f := flags.Lookup(name)
	set := f.Value.Set
	f.Usage, f.Value = usage+" `TIME`, such as 2026-01-02T15:04:05Z, or 1h for an hour ago", value{f.Value, func(text string) error {
		if ago, err := ParseDuration(text); err == nil && ago >= 0 {
			return set(time.Now().UTC().Add(-ago).Format(time.RFC3339Nano))
		}
		if set(text) != nil {
			return refusal{fmt.Errorf("--%s %q: it is neither a time such as 2026-01-02T15:04:05Z nor a duration such as 1h", name, Shown(text))}
		}
		return nil
	}}
}
