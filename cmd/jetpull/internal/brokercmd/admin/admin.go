// Package admin implements the commands that administer a running broker.
package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// named is what a word in capitals in a usage line stands for. Its paths have such words too.
type named struct {
	kind string // "scheduled message"
	item string // the path of one
	list string // and of all, to complete its name
	ls   string // the command that lists all
}

var words = map[string]named{
	"PRODUCER":  {"producer", "/producer/PRODUCER", "/producers", "producers ls"},
	"CHANNEL":   {"channel", "/channel/CHANNEL", "/channels", "channels ls"},
	"ACCESS":    {"access token", "/channel/CHANNEL/access/ACCESS", "/channel/CHANNEL/access", "access ls CHANNEL"},
	"CONSUMER":  {"consumer", "/channel/CHANNEL/consumer/CONSUMER", "/channel/CHANNEL/consumers", "consumers ls CHANNEL"},
	"MESSAGE":   {"message", "/channel/CHANNEL/message/MESSAGE", "/channel/CHANNEL/messages", "messages ls CHANNEL"},
	"SCHEDULED": {"scheduled message", "/channel/CHANNEL/scheduled-message/SCHEDULED", "/channel/CHANNEL/scheduled-messages", "scheduled ls CHANNEL"},
	"REPLAY":    {"replay", "/channel/CHANNEL/consumer/CONSUMER/replay/REPLAY", "/replays", "replay ls CHANNEL CONSUMER"},
}

// choices are the values of flags that have few.
var choices = map[string][]string{
	"status": {"QUEUED", "INFLIGHT", "DELIVERED", "DEAD"}, "type": {"push", "pull"}, "role": {"read", "publish", "manage"},
}

// verb is one command. Without run it makes a request and prints the answer.
type verb struct {
	use, short, long string
	method           string // GET if empty
	path             string
	columns          []string // the fields that a list shows; nil: the answer is no list
	flags            func(*pflag.FlagSet)
	fields           func(*pflag.FlagSet) // flags that are fields of what is put
	aliases          []string
	run              func(*call) error
}

// call is a verb that runs.
type call struct {
	*remote.Broker
	verb
	cmd   *cobra.Command
	names map[string]string // of what is meant, by words
	args  []string
	given *remote.Fields
}

func (v verb) command(b *remote.Broker) *cobra.Command {
	cmd := &cobra.Command{Use: v.use, Aliases: v.aliases, Short: v.short, Long: v.long}
	var order []string
	least, most := 0, 0
	for _, word := range strings.Fields(v.use)[1:] {
		order = append(order, strings.Trim(word, "[]."))
		most++
		if !strings.HasPrefix(word, "[") {
			least++
		}
		if strings.HasSuffix(word, "...]") {
			most = math.MaxInt
		}
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most || slices.Contains(args, "") {
			return fmt.Errorf("usage: %s, not %d arguments %q", cmd.UseLine(), len(args), args)
		}
		return nil
	}
	if v.flags != nil {
		v.flags(cmd.Flags())
	}
	given := &remote.Fields{FlagSet: pflag.NewFlagSet("", pflag.ContinueOnError), Name: camel}
	if v.fields != nil {
		v.fields(given.FlagSet)
		given.Register(cmd)
	}
	for name, values := range choices {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
		}
	}
	if v.columns != nil {
		limit := cmd.Flags().Int("limit", 100, "list so many at most; 0 for all")
		cli.Range(cmd.Flags(), "limit", limit, 0, math.MaxInt32)
	}
	name := func(args []string) map[string]string {
		names := map[string]string{}
		for i, word := range order[:min(len(order), len(args))] {
			names[word] = args[i]
		}
		return names
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := &call{b, v, cmd, name(args), args, given}
		run := v.run
		switch {
		case run == nil && v.columns != nil:
			run = (*call).list
		case run == nil:
			run = (*call).request
		}
		return c.explain(run(c))
	}
	b.Complete(cmd, func(ctx context.Context, args []string) ([]string, error) {
		if len(args) >= most {
			return nil, nil
		}
		c := &call{b, v, cmd, name(args), args, given}
		return c.complete(ctx, words[order[min(len(args), len(order)-1)]])
	})
	return cmd
}

// to fills in the words of a path.
func (c *call) to(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if name, ok := c.names[part]; ok {
			parts[i] = httpserve.EscapeID(name)
		}
	}
	return strings.Join(parts, "/")
}

var wordEnd = regexp.MustCompile(`([a-z])([A-Z])`)

// camel is the field or parameter that a flag such as --event-type sets.
func camel(flag string) string {
	first, rest, ok := strings.Cut(flag, "-")
	if !ok {
		return flag
	}
	rest = camel(rest)
	return first + strings.ToUpper(rest[:1]) + rest[1:]
}

// query is what the command's own flags say, except how long a list is to be.
func (c *call) query() url.Values {
	q := url.Values{}
	c.cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		list, isList := f.Value.(pflag.SliceValue)
		switch {
		case !f.Changed, f.Name == "limit":
		case isList:
			q[camel(f.Name)] = list.GetSlice()
		default:
			q.Set(camel(f.Name), f.Value.String())
		}
	})
	return q
}

// request makes the request and prints what is answered, if anything.
func (c *call) request() error {
	path := c.to(c.path)
	if q := c.query().Encode(); q != "" {
		path += "?" + q
	}
	method := c.method
	if method == "" {
		method = http.MethodGet
	}
	answer, _, err := c.Ask(c.cmd.Context(), remote.Request{Method: method, Path: path}, nil)
	if err != nil || len(answer) == 0 {
		return err
	}
	return c.show(answer)
}

// pages reads a list up to a limit; 0 is all.
func (c *call) pages(ctx context.Context, path string, limit int) (items []json.RawMessage, err error) {
	for path != "" && (limit == 0 || len(items) < limit) {
		var page struct {
			Result []json.RawMessage
			Pages  map[string]string
		}
		if _, err := c.Get(ctx, path, &page); err != nil {
			return nil, err
		}
		items = append(items, slices.DeleteFunc(page.Result, func(item json.RawMessage) bool { return !c.means(item) })...)
		path = page.Pages["next"]
	}
	if limit > 0 {
		items = items[:min(len(items), limit)]
	}
	return items, nil
}

// readAtOnce is how many of a list's links are read at a time.
const readAtOnce = 8

// linked replaces the links of a list by the objects that they show, without tokens. An object that was deleted meanwhile is left out.
func (c *call) linked(ctx context.Context, items []json.RawMessage) ([]json.RawMessage, error) {
	var group errgroup.Group
	group.SetLimit(readAtOnce)
	for i, item := range items {
		var link string
		if json.Unmarshal(item, &link) != nil {
			continue // it is no link
		}
		group.Go(func() error {
			var fields map[string]json.RawMessage
			items[i] = nil
			_, err := c.Get(ctx, link, &fields)
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

// list prints a list.
func (c *call) list() error {
	limit, err := c.cmd.Flags().GetInt("limit")
	if err != nil {
		return err
	}
	path := c.to(c.path)
	if q := c.query().Encode(); q != "" {
		path += "?" + q
	}
	items, err := c.pages(c.cmd.Context(), path, limit)
	if err == nil {
		items, err = c.linked(c.cmd.Context(), items)
	}
	if err != nil {
		return err
	}
	if len(items) == 0 {
		return c.none()
	}
	header := make([]string, len(c.columns))
	for i, column := range c.columns {
		header[i] = title(column)
	}
	return remote.List(c.Server, c.cmd, items, header, func(item *map[string]json.RawMessage) []string {
		row := make([]string, len(c.columns))
		for i, column := range c.columns {
			row[i] = short(cell((*item)[strings.TrimPrefix(column, ">")]))
		}
		return row
	})
}

// means reports whether an item of a list belongs to the channel and consumer that are named. One that does not say so is of a list that
// has no others.
func (c *call) means(item json.RawMessage) bool {
	var of struct{ ChannelID, ConsumerID string }
	_ = json.Unmarshal(item, &of) // a link has neither
	fits := func(id, word string) bool { return id == "" || c.names[word] == "" || id == c.names[word] }
	return fits(of.ChannelID, "CHANNEL") && fits(of.ConsumerID, "CONSUMER")
}

// none reports an empty list, unless it is empty because what it is of does not exist.
func (c *call) none() error {
	for _, word := range []string{"CHANNEL", "CONSUMER"} {
		if c.names[word] != "" {
			if _, err := c.Get(c.cmd.Context(), c.to(words[word].item), nil); err != nil {
				return err
			}
		}
	}
	if !*c.JSON {
		cli.Notice(c.cmd.ErrOrStderr(), "there are none\n")
	}
	return nil
}

// title is the head of a field's column. ">" before it is that of a number.
func title(field string) string {
	field = strings.ToLower(wordEnd.ReplaceAllString(field, "$1 $2"))
	return strings.TrimSuffix(strings.TrimSuffix(field, " id"), " at")
}

// cell is a field as text: a time is local, and what has fields of its own is JSON.
func cell(field json.RawMessage) string {
	var text string
	if json.Unmarshal(field, &text) != nil {
		return string(field)
	}
	at, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		return text
	case at.IsZero():
		return ""
	}
	return at.Local().Format(time.DateTime)
}

// widest is how many characters of a field a list shows.
const widest = 80

func short(text string) string {
	if utf8.RuneCountInString(text) > widest {
		return string([]rune(text)[:widest-1]) + "…"
	}
	return text
}

// show prints an object, a field on a line. A list in it has a line for each item.
func (c *call) show(answer json.RawMessage) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(answer, &fields); err != nil {
		return fmt.Errorf("the broker answered no object: %w", err)
	}
	order := slices.SortedFunc(maps.Keys(fields), func(a, b string) int {
		return bytes.Index(answer, fmt.Appendf(nil, "%q:", a)) - bytes.Index(answer, fmt.Appendf(nil, "%q:", b))
	})
	var rows [][]string
	for _, name := range order {
		var items []json.RawMessage
		if json.Unmarshal(fields[name], &items) != nil {
			items = []json.RawMessage{fields[name]}
		}
		for _, item := range items {
			rows = append(rows, []string{strings.ToLower(wordEnd.ReplaceAllString(name, "$1 $2")), cell(item)})
		}
	}
	return c.Print(c.cmd, answer, remote.Table([]string{"field", "value"}, rows))
}

// explain names what does not exist, and says what to do about a refusal.
func (c *call) explain(err error) error {
	refused, isRefused := errors.AsType[*client.Error](err)
	switch {
	case errors.Is(err, client.ErrNotFound):
		for _, word := range strings.Fields(c.use)[1:] {
			word = strings.Trim(word, "[].")
			of := words[word]
			if _, missing := c.Get(c.cmd.Context(), c.to(of.item), nil); errors.Is(missing, client.ErrNotFound) {
				ls := "jetpull broker"
				for part := range strings.FieldsSeq(of.ls) {
					if name, ok := c.names[part]; ok {
						part = name
					}
					ls += " " + part
				}
				return fmt.Errorf("no %s %q; see what there is with: %s", of.kind, c.names[word], ls)
			}
		}
	case isRefused && refused.Status == http.StatusPreconditionFailed:
		return fmt.Errorf("%w: somebody else changed it meanwhile; look at it and try again", err)
	case isRefused && refused.Status == http.StatusConflict: // the text speaks of what the command has as a flag
		return errors.New(strings.Replace(refused.Text, "?force=true", "--force", 1))
	}
	return err
}

// complete returns the names that a word can stand for.
func (c *call) complete(ctx context.Context, of named) (names []string, err error) {
	items, err := c.pages(ctx, c.to(of.list), 100)
	for _, item := range items {
		var link string
		var object struct{ ID string }
		switch {
		case json.Unmarshal(item, &link) == nil:
			if object.ID, err = url.PathUnescape(link[strings.LastIndexByte(link, '/')+1:]); err != nil {
				return nil, err
			}
		default:
			if err := json.Unmarshal(item, &object); err != nil {
				return nil, err
			}
		}
		names = append(names, object.ID)
	}
	return names, err
}

// at is a flag with a time, or how long ago that was.
func at(flags *pflag.FlagSet, name, usage string) {
	flags.Var(new(moment), name, usage+", a `TIME` such as 2026-01-02T15:04:05Z, or 1h ago")
}

// moment is a time of RFC 3339.
type moment string

// String, Set and Type implement pflag.Value.
func (m *moment) String() string { return string(*m) }

// Set reads a time, or a duration before now.
func (m *moment) Set(text string) error {
	if ago, err := time.ParseDuration(text); err == nil {
		text = time.Now().Add(-ago).UTC().Format(time.RFC3339Nano)
	} else if _, err := time.Parse(time.RFC3339, text); err != nil {
		return errors.New("it is neither a time such as 2026-01-02T15:04:05Z nor a duration such as 1h")
	}
	*m = moment(text)
	return nil
}

// Type names the value in a usage text.
func (m *moment) Type() string { return "string" }
