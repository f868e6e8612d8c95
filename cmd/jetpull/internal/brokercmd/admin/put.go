package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/progress"
)

const putLong = `Create or change %s. A setting that neither --file nor a flag gives
stays as it is. Give secrets in --file (%s):
other users of the machine can see a command line. If you create it without a
token, the broker generates one and the answer shows it.`

// put returns the verb that configures the object that the last word of use names. Secret fields have no flag. The broker keeps fields that
// are not given, unless the verb replaces the object.
func put(use, one string, secret []string, flags func(*pflag.FlagSet)) remote.Verb {
	return remote.Verb{
		Use: use, Short: "Create or change " + one, Long: fmt.Sprintf(putLong, one, strings.Join(secret, ", ")),
		Replaced: "A token\nthat is not given is generated, and the answer shows it.",
		Fields: func(set *pflag.FlagSet) {
			set.String("name", "", "`NAME` to show; a new one without it is shown by its ID")
			if flags != nil {
				flags(set)
			}
		},
		Run: func(c *remote.Call) error {
			given, err := c.Body()
			if err != nil {
				return err
			}
			known, form := slices.Concat(secret, c.KnownFields()), url.Values{}
			for name, value := range given {
				if !slices.Contains(known, name) {
					return cli.Usage(fmt.Errorf("--file: %s has no field %q, but %s", one, name, strings.Join(known, ", ")))
				}
				form.Set(name, text(value))
			}
			answer, _, err := c.Ask(c.Cmd.Context(), remote.Request{
				Method: http.MethodPut, Path: c.To(c.Path) + "?keep=" + strconv.FormatBool(!c.Replace), Body: []byte(form.Encode()),
				Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "If-Match": {"*"}},
			}, nil)
			if err != nil {
				return err
			}
			return cli.Show(c.Cmd, answer)
		},
	}
}

// text formats a value for a form: a list with commas, and an object as JSON.
func text(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	case []string:
		return strings.Join(value, ",")
	case []any:
		parts := make([]string, len(value))
		for i, part := range value {
			parts[i] = text(part)
		}
		return strings.Join(parts, ",")
	}
	data, _ := json.Marshal(value) // cannot fail: it was decoded from JSON
	return string(data)
}

// rm returns the verb that deletes the object that the last word of use names.
func rm(use, short string, check func(*remote.Call) error, flags func(*pflag.FlagSet)) remote.Verb {
	return remote.Verb{Use: use, Short: short, Flags: flags, Run: func(c *remote.Call) error {
		if check != nil {
			if err := check(c); err != nil {
				return err
			}
		}
		r := remote.Request{Method: http.MethodDelete, Path: c.To(c.Path), Header: http.Header{"If-Match": {"*"}}}
		if c.Is("force") && check == nil { // a channel with its consumers, of which the broker deletes some hundreds per second
			r.Path, r.Wait = r.Path+"?force=true", service.Century
		}
		_, _, err := c.Ask(c.Cmd.Context(), r, nil)
		return err
	}}
}

// force adds the flag --force to verbs that would delete more than the named object.
func force(flags *pflag.FlagSet) {
	flags.Bool("force", false, "delete it together with the messages and jobs that wait in it")
}

// unused returns an error if a consumer has unfinished jobs and --force is not given.
func unused(c *remote.Call) error {
	if c.Is("force") {
		return nil
	}
	states, err := c.Items(c.Cmd.Context(), "/consumers", 1)
	if err != nil || len(states) == 0 {
		return err // if it does not exist, the request to delete it reports that
	}
	var waiting struct{ Queued, Inflight int }
	if err := json.Unmarshal(states[0], &waiting); err != nil {
		return err
	}
	if waiting.Queued+waiting.Inflight > 0 {
		return fmt.Errorf("consumer %q has %s and %d in flight, which are deleted with it: give --force", c.Names["CONSUMER"],
			progress.Plural(waiting.Queued, "queued job"), waiting.Inflight)
	}
	return nil
}
