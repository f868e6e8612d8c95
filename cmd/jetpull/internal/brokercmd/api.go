package brokercmd

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpclient"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/internal/service/webhook"
)

var words = map[string]remote.Word{
	"PRODUCER":  {Kind: "producer", Item: "/producer/PRODUCER", Ls: "producers ls"},
	"CHANNEL":   {Kind: "channel", Item: "/channel/CHANNEL", Ls: "channels ls"},
	"ACCESS":    {Kind: "access token", Item: "/channel/CHANNEL/access/ACCESS", Ls: "access ls CHANNEL"},
	"CONSUMER":  {Kind: "consumer", Item: "/channel/CHANNEL/consumer/CONSUMER", Ls: "consumers ls CHANNEL"},
	"MESSAGE":   {Kind: "message", Item: "/channel/CHANNEL/message/MESSAGE", Ls: "messages ls CHANNEL"},
	"SCHEDULED": {Kind: "scheduled message", Item: "/channel/CHANNEL/scheduled-message/SCHEDULED", Ls: "scheduled ls CHANNEL"},
	"REPLAY":    {Kind: "replay", Item: "/channel/CHANNEL/consumer/CONSUMER/replay/REPLAY", Ls: "replay ls CHANNEL CONSUMER"},
}

// envSecret is the environment variable with the secret for signatures. The broker process reads it too.
const envSecret = "JETPULL_BROKER_GATEWAY_AUTH_HMAC_SHARED_SECRET"

// newAPI returns the client of the broker that the flags name.
func newAPI() *remote.API {
	var secret, ca string
	return &remote.API{
		System: "broker", EnvURL: remote.BrokerURL, EnvToken: remote.BrokerToken, TokenFlag: "admin-token",
		TokenOf: "the administration, or of access to a channel",
		Denied:  client.ErrDenied, Unavailable: client.ErrUnavailable, NotFound: client.ErrNotFound,
		More: func(flags *pflag.FlagSet) {
			flags.StringVar(&secret, "gateway-auth-hmac-shared-secret", "", "`SECRET` to sign requests with, if it wants that; better $"+envSecret)
			flags.StringVar(&ca, "tlsca", "", "`FILE` with the certificates of authorities, beside the system's")
		},
		Send: func(ctx context.Context, base, token string, r remote.Request, answer any) (http.Header, error) {
			h, err := httpClient(cmp.Or(secret, os.Getenv(envSecret)), ca)
			if err != nil {
				return nil, err
			}
			header, err := client.NewAdmin(base, token, h).Send(ctx, r.Method, r.Path, r.Header, r.Body, answer)
			return header, explain(err)
		},
		Words: words, Field: camel, Page: page, Linked: linked,
		Operation: replay, Unit: "job", OperationWord: "REPLAY",
		OperationShow: "replay status --follow CHANNEL CONSUMER REPLAY", OperationCancel: "replay cancel CHANNEL CONSUMER REPLAY",
	}
}

// httpClient returns a client that trusts the authorities in the file ca and signs requests with secret. Either may be empty.
func httpClient(secret, ca string) (*http.Client, error) {
	h := httpclient.New(nil)
	if ca != "" {
		roots, err := webhook.Authorities(natscontext.ExpandHome(ca))
		if err != nil {
			return nil, fmt.Errorf("--tlsca: %w", err)
		}
		h.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		}
	}
	if secret == "" {
		return h, nil
	}
	var err error
	h.Transport, err = client.Signing(secret, h.Transport)
	return h, err
}

// camel returns the field or parameter that a flag sets, such as eventType for --event-type.
func camel(flag string) string {
	first, rest, ok := strings.Cut(flag, "-")
	if !ok {
		return flag
	}
	rest = camel(rest)
	return first + strings.ToUpper(rest[:1]) + rest[1:]
}

// page reads a page of a list. It drops items of other channels and consumers than those that the command names. An item without these IDs
// is from a list of one channel or consumer.
func page(c *remote.Call, _ string, answer json.RawMessage) (items []json.RawMessage, next string, err error) {
	var list struct {
		Result []json.RawMessage
		Pages  map[string]string
	}
	err = json.Unmarshal(answer, &list)
	items = slices.DeleteFunc(list.Result, func(item json.RawMessage) bool {
		var of struct{ ChannelID, ConsumerID string }
		_ = json.Unmarshal(item, &of) // a link has no IDs
		other := func(id, word string) bool { return id != "" && c.Names[word] != "" && id != c.Names[word] }
		return other(of.ChannelID, "CHANNEL") || other(of.ConsumerID, "CONSUMER")
	})
	return items, list.Pages["next"], err
}

// readAtOnce is the number of links of a list that are read concurrently.
const readAtOnce = 8

// linked replaces the links of a list by their objects, without tokens. It drops objects that were deleted in the meantime.
func linked(c *remote.Call, items []json.RawMessage) ([]json.RawMessage, error) {
	var group errgroup.Group
	group.SetLimit(readAtOnce)
	for i, item := range items {
		var link string
		if json.Unmarshal(item, &link) != nil {
			continue // not a link
		}
		group.Go(func() error {
			var fields map[string]json.RawMessage
			items[i] = nil
			_, err := c.Get(c.Cmd.Context(), link, &fields)
			switch {
			case errors.Is(err, client.ErrNotFound):
				return nil
			case err != nil:
				return err
			}
			delete(fields, "Token")
			items[i], err = json.Marshal(fields)
			return err
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(items, func(item json.RawMessage) bool { return len(item) == 0 }), err
}

// explain adds advice to the error of a refused request.
func explain(err error) error {
	refused, isRefused := errors.AsType[*client.Error](err)
	switch {
	case isRefused && refused.Text == http.StatusText(http.StatusPreconditionFailed): // other texts name another reason
		return fmt.Errorf("%w: it was changed by another request; read it again and retry", err)
	case isRefused && refused.Status == http.StatusConflict: // the text names the parameter instead of the command's flag
		return errors.New(strings.Replace(refused.Text, "?force=true", "--force", 1))
	}
	return err
}

// replay reads a replay or purge, or the result of its dry run.
func replay(answer json.RawMessage) (remote.Operation, error) {
	var r struct {
		ID, Kind, State                          string
		Count, Replayed, Purged, Skipped, Failed int
	}
	err := json.Unmarshal(answer, &r)
	return remote.Operation{
		ID: r.ID, Verb: cmp.Or(r.Kind, "replay"), State: r.State, Running: r.State == "RUNNING", Matched: r.Count,
		Done: r.Replayed + r.Purged + r.Skipped + r.Failed,
	}, err
}

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
