package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// Word describes the objects for which a word in capitals of a usage line stands. Its path contains such words too.
type Word struct {
	Kind string // "scheduled message"
	Item string // the path of one
	Ls   string // the command that lists them
}

// Noun is a command with verbs.
type Noun struct {
	Name, Short string
	Verbs       []Verb
}

// Verb is one command. If Run is nil, it makes a request and prints the answer.
type Verb struct {
	Use, Short, Long, Example string
	Method                    string               // GET if empty
	Path                      string               // if empty, the path of the last word of Use
	Columns                   []string             // the fields that a list shows; nil: the answer is not a list
	Flags                     func(*pflag.FlagSet) // adds flags for parameters of the request
	Fields                    func(*pflag.FlagSet) // adds flags for fields of its body
	Aliases                   []string
	Run                       func(*Call) error
	// Replaced is the help text about secrets that a replace does not give. Each verb put, which keeps fields that are not given, has a
	// twin replace, which does not.
	Replaced string
	Replace  bool // this verb is the twin
}

// Call is a running verb.
type Call struct {
	*API
	Verb
	Cmd   *cobra.Command
	Names map[string]string // the names of objects, by word
	Args  []string
}

// Commands returns the nouns as commands.
func (a *API) Commands(nouns []Noun) (cmds []*cobra.Command) {
	for _, noun := range nouns {
		cmd := &cobra.Command{Use: noun.Name, Short: noun.Short}
		a.register(cmd)
		for _, v := range noun.Verbs {
			cmd.AddCommand(a.verb(v))
			if names, ok := strings.CutPrefix(v.Use, "put "); ok {
				v.Use, v.Short, v.Replace, v.Example = "replace "+names, strings.Replace(v.Short, "change", "replace", 1), true, ""
				v.Long = v.Short + ". A setting that neither --file nor a flag gives gets its\ndefault; put keeps it instead. " + v.Replaced
				cmd.AddCommand(a.verb(v))
			}
		}
		cmds = append(cmds, cmd)
	}
	return cmds
}

// Command returns a verb as a separate command.
func (a *API) Command(v Verb) *cobra.Command {
	cmd := a.verb(v)
	a.register(cmd)
	return cmd
}

func (a *API) verb(v Verb) *cobra.Command {
	cmd := &cobra.Command{Use: v.Use, Aliases: v.Aliases, Short: v.Short, Long: v.Long, Example: v.Example}
	order, _, _ := cli.Words(v.Use)
	v.Path = cmp.Or(v.Path, a.Words[v.Word()].Item)
	if v.Flags != nil {
		v.Flags(cmd.Flags())
		cmd.Flags().VisitAll(func(f *pflag.Flag) { // an empty filter, as from an unset shell variable, would select everything
			if f.Value.Type() == "string" {
				cli.NotEmpty(cmd.Flags(), f.Name, "a value")
			}
		})
	}
	if v.Fields != nil {
		v.Fields(cmd.Flags())
		cmd.Flags().String("file", "", "`FILE` with the configuration as JSON; - for standard input")
		cli.NotEmpty(cmd.Flags(), "file", "a file, or - for standard input")
	}
	if v.Columns != nil {
		cli.Int(cmd.Flags(), new(int), "limit", 100, 0, math.MaxInt32, "list at most this many; 0: all")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, run := &Call{API: a, Verb: v, Cmd: cmd, Names: map[string]string{}, Args: args}, v.Run
		for i, word := range order[:min(len(order), len(args))] {
			c.Names[word] = args[i]
		}
		switch {
		case run == nil && v.Columns != nil:
			run = (*Call).List
		case run == nil:
			run = (*Call).Request
		}
		return c.explain(run(c))
	}
	return cmd
}

// Word returns the last word of the usage line, which stands for the verb's object.
func (v Verb) Word() string { return v.Use[strings.LastIndexByte(v.Use, ' ')+1:] }

// To replaces the words of a path by names.
func (c *Call) To(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if name, ok := c.Names[part]; ok {
			parts[i] = httpserve.EscapeID(name)
		}
	}
	return strings.Join(parts, "/")
}

// own are the flags that the command itself uses. Requests do not have them.
var own = []string{"all", "detach", "dry-run", "file", "follow", "force", "help", "limit", "rate", "wait"}

// visit calls f for each flag that sets a field or a parameter of the request.
func (c *Call) visit(f func(field string, flag *pflag.Flag)) {
	c.Cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(own, flag.Name) {
			f(c.Field(flag.Name), flag)
		}
	})
}

// Is reports whether a boolean flag is true. It returns false for a verb without the flag.
func (c *Call) Is(flag string) bool {
	on, _ := c.Cmd.Flags().GetBool(flag)
	return on
}

// Given returns the fields or parameters whose flags were given.
func (c *Call) Given() map[string]any {
	given := map[string]any{}
	c.visit(func(field string, flag *pflag.Flag) {
		list, isList := flag.Value.(pflag.SliceValue)
		pairs, notPairs := c.Cmd.Flags().GetStringToString(flag.Name)
		switch text := flag.Value.String(); {
		case !flag.Changed:
		case isList:
			given[field] = list.GetSlice()
		case notPairs == nil:
			given[field] = pairs
		case flag.Value.Type() != "string" && json.Valid([]byte(text)): // numbers and booleans
			given[field] = json.RawMessage(text)
		default:
			given[field] = text
		}
	})
	return given
}

// pathWithFlags returns the path of the request, with flags as parameters. A pair NAME=VALUE becomes NAME:VALUE, as in a header.
func (c *Call) pathWithFlags() string {
	if c.Flags == nil {
		return c.To(c.Path)
	}
	q := url.Values{}
	for name, value := range c.Given() {
		switch value := value.(type) {
		case []string:
			q[name] = value
		case map[string]string:
			for key, value := range value {
				q.Add(name, key+":"+value)
			}
		default:
			q.Set(name, fmt.Sprintf("%s", value))
		}
	}
	return strings.TrimSuffix(c.To(c.Path)+"?"+q.Encode(), "?")
}

// Body returns the fields from the file of --file and from flags. Flags take precedence.
func (c *Call) Body() (fields map[string]any, err error) {
	fields = map[string]any{}
	if file, _ := c.Cmd.Flags().GetString("file"); file != "" {
		var data []byte
		if file == "-" {
			data, err = io.ReadAll(cli.Input(c.Cmd))
		} else {
			data, err = os.ReadFile(file)
		}
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		err = json.Unmarshal(data, &fields)
		if err == nil && fields == nil {
			err = errors.New("it is null")
		}
		if err != nil {
			return nil, cli.Usage(fmt.Errorf("--file %s is not a JSON object with the fields of a configuration: %w", file, err))
		}
	}
	maps.Copy(fields, c.Given())
	return fields, nil
}

// KnownFields returns the fields that have a flag.
func (c *Call) KnownFields() (names []string) {
	c.visit(func(field string, _ *pflag.Flag) { names = append(names, field) })
	return names
}

// Request makes the request, with the given fields as its body, and prints the answer if there is one.
func (c *Call) Request() error {
	if c.Fields == nil {
		return c.RequestWith(nil)
	}
	body, err := c.Body()
	if err != nil {
		return err
	}
	return c.RequestWith(body)
}

// RequestWith is like Request, but with the given body. nil sends none.
func (c *Call) RequestWith(body any) error {
	r := Request{Method: cmp.Or(c.Method, http.MethodGet), Path: c.pathWithFlags(), Body: body}
	answer, _, err := c.Ask(c.Cmd.Context(), r, nil)
	if err != nil || len(answer) == 0 {
		return err
	}
	return cli.Show(c.Cmd, answer)
}

// Items reads a list up to a limit. 0 means no limit.
func (c *Call) Items(ctx context.Context, path string, limit int) (items []json.RawMessage, err error) {
	for path != "" && (limit == 0 || len(items) < limit) {
		answer, err := c.Get(ctx, path, nil)
		if err != nil {
			return nil, err
		}
		page, next, err := c.Page(c, path, answer)
		if err != nil {
			return nil, fmt.Errorf("read the %s's list: %w", c.System, err)
		}
		items, path = append(items, page...), next
	}
	if limit > 0 {
		items = items[:min(len(items), limit)]
	}
	return items, nil
}

// List prints the list at the verb's path, up to --limit.
func (c *Call) List() error {
	limit, _ := c.Cmd.Flags().GetInt("limit") // each verb with columns has it
	items, err := c.Items(c.Cmd.Context(), c.pathWithFlags(), limit)
	if err == nil && c.Linked != nil {
		items, err = c.Linked(c, items)
	}
	if err != nil {
		return err
	}
	if len(items) == 0 {
		if err := c.Exists(); err != nil {
			return err
		}
	}
	return cli.List(c.Cmd, c.Columns, cli.All(items))
}

// Exists returns an error if an object that the arguments or a flag name does not exist. A list of its items would only be empty.
func (c *Call) Exists() error {
	order, _, _ := cli.Words(c.Use)
	for word := range c.Words {
		if f := c.Cmd.Flags().Lookup(strings.ToLower(word)); f != nil && f.Changed {
			c.Names[word], order = f.Value.String(), append(order, word)
		}
	}
	for _, word := range order {
		of := c.Words[word]
		if of.Item == "" || c.Names[word] == "" {
			continue
		}
		_, err := c.Get(c.Cmd.Context(), c.To(of.Item), nil)
		switch {
		case errors.Is(err, c.NotFound):
			return fmt.Errorf("no %s %q; see what there is with: %s", of.Kind, c.Names[word], c.line(of.Ls))
		case err != nil:
			return err
		}
	}
	return nil
}

// line returns a command line with names in place of words.
func (c *Call) line(usage string) string {
	line := "jetpull " + c.System
	for part := range strings.FieldsSeq(usage) {
		if name, ok := c.Names[part]; ok {
			part = name
		}
		line += " " + part
	}
	return line
}

// explain adds to the error of a verb which object does not exist, or what to do.
func (c *Call) explain(err error) error {
	if errors.Is(err, c.NotFound) {
		err = cmp.Or(c.Exists(), err)
	}
	dial, isDial := errors.AsType[*net.OpError](err)
	switch {
	case err == nil:
		return nil
	case c.Cmd.Context().Err() != nil:
		return cli.ErrInterrupted
	case errors.Is(err, c.Denied) && c.secret() != "":
		return fmt.Errorf("%w: the token of --%s or $%s does not allow it", err, c.TokenFlag, c.EnvToken)
	case errors.Is(err, c.Denied):
		return fmt.Errorf("%w: give --%s or $%s", err, c.TokenFlag, c.EnvToken)
	case isDial && dial.Op == "dial":
		return fmt.Errorf("%w; start one with jetpull %s, or give --url or $%s", err, c.System, c.EnvURL)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from %s within %v: %w", mask.URL(c.base()), c.timeout, context.DeadlineExceeded)
	}
	return err
}
