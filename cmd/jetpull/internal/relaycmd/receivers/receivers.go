// Package receivers implements jetpull relay receivers.
package receivers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd/remote"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/relay/client"
)

// view is what the relay shows of a receiver.
type view struct {
	Name           string  `json:"name"`
	PostEndpoint   string  `json:"post_endpoint"`
	StatusEndpoint string  `json:"status_endpoint"`
	RateLimit      int     `json:"rate_limit"`
	Window         float64 `json:"window_size"`
	RetryAfter     float64 `json:"retry_after"`
	MaxRetries     int     `json:"max_retries"`
	Timeout        float64 `json:"timeout"`
	Order          string  `json:"order"`
	UnknownOutcome string  `json:"unknown_outcome"`
	TTL            float64 `json:"ttl"`
	Secrets        int     `json:"secret_count"`
	Paused         bool    `json:"paused"`
	State          *struct {
		Breaker    string          `json:"breaker"`
		WindowUsed int             `json:"window_used"`
		InFlight   int             `json:"in_flight"`
		Disabled   bool            `json:"disabled"`
		Backlog    int             `json:"backlog"`
		Oldest     float64         `json:"oldest"`
		Waiting    *remote.Waiting `json:"waiting"`
	} `json:"state"`
}

// New is jetpull relay receivers.
func New(r *remote.Relay) *cobra.Command {
	cmd := &cobra.Command{Use: "receivers", Short: "Show and configure receivers", Args: cobra.NoArgs, RunE: cli.Help}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List the receivers", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return list(r, cmd) }},
		&cobra.Command{
			Use: "show NAME", Short: "Show a receiver, with its breaker, window and backlog", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return show(r, cmd, http.MethodGet, args[0], nil) },
		},
		newPut(r),
		&cobra.Command{
			Use: "rm NAME", Short: "Remove a receiver; what waits for it fails", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, err := r.Ask(cmd.Context(), 0, http.MethodDelete, Path(args[0]), nil, nil)
				return err
			},
		})
	return cmd
}

// Path is the path of a receiver in the relay's interface.
func Path(name string) string { return "/v1/receivers/" + client.PathEscape(name) }

func list(r *remote.Relay, cmd *cobra.Command) error {
	var answer struct{ Items []json.RawMessage }
	if _, err := r.Ask(cmd.Context(), 0, http.MethodGet, "/v1/receivers", nil, &answer); err != nil {
		return err
	}
	return remote.List(r, cmd, answer.Items, []string{"name", "endpoint", "limit", "order", "state"}, func(v *view) []string {
		return []string{v.Name, v.PostEndpoint, v.limit(), v.Order, v.state()}
	})
}

// show makes a request that is answered with a receiver, and prints that.
func show(r *remote.Relay, cmd *cobra.Command, method, name string, body any) error {
	var v view
	answer, err := r.Ask(cmd.Context(), 0, method, Path(name), body, &v)
	if err != nil {
		return err
	}
	return r.Print(cmd, answer, v.text())
}

func (v *view) limit() string {
	if v.RateLimit == 0 {
		return "none"
	}
	return fmt.Sprintf("%s in %g s", progress.Count(v.RateLimit), v.Window)
}

// state is why a receiver gets nothing now, or active.
func (v *view) state() string {
	switch {
	case v.State != nil && v.State.Disabled:
		return "disabled by 410"
	case v.Paused:
		return "paused"
	case v.State != nil && v.State.Breaker != "closed":
		return "breaker " + strings.ReplaceAll(v.State.Breaker, "_", " ")
	}
	return "active"
}

func (v *view) text() string {
	ttl := "none"
	if v.TTL != 0 {
		ttl = fmt.Sprintf("%g s", v.TTL)
	}
	rows := [][]string{
		{"post endpoint", v.PostEndpoint},
		{"status endpoint", v.StatusEndpoint},
		{"limit", v.limit()},
		{"retries", fmt.Sprintf("%d, %g s apart", v.MaxRetries, v.RetryAfter)},
		{"timeout", fmt.Sprintf("%g s", v.Timeout)},
		{"order", v.Order},
		{"unknown outcome", v.UnknownOutcome},
		{"time to live", ttl},
		{"secrets", strconv.Itoa(v.Secrets)},
		{"paused", strconv.FormatBool(v.Paused)},
	}
	if s := v.State; s != nil {
		rows = append(rows, [][]string{
			{"breaker", s.Breaker},
			{"window used", strconv.Itoa(s.WindowUsed)},
			{"in flight", strconv.Itoa(s.InFlight)},
			{"disabled", strconv.FormatBool(s.Disabled)},
			{"backlog", progress.Count(s.Backlog)},
			{"oldest", fmt.Sprintf("%.1f s", s.Oldest)},
		}...)
		if s.Waiting != nil {
			rows = append(rows, []string{"waits for", s.Waiting.Text()})
		}
	}
	return remote.Table([]string{v.Name, ""}, rows)
}

// timeoutFlag is the flag of the field timeout: --timeout is that of the command's own requests.
const timeoutFlag = "timeout-of-post"

// newPut is jetpull relay receivers put. But for timeoutFlag, a flag is called as the field that it sets.
func newPut(r *remote.Relay) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "put NAME",
		Short: "Configure a receiver, a new one or one that there is",
		Long: `Configure a receiver. What neither --file nor a flag gives is as the relay has it
for a new one, except secrets: those that are there stay. Secrets come by --file,
since other users of the machine can see a command line.`,
		Example: `  jetpull relay receivers put ci --post-endpoint http://127.0.0.1:9090/hook --rate-limit 200 --window-size 10
  jetpull relay receivers put ci --file ci.json --paused`,
		Args: cobra.ExactArgs(1),
	}
	fields := pflag.NewFlagSet("", pflag.ContinueOnError)
	fields.String("post-endpoint", "", "`URL` that messages are POSTed to")
	fields.String("status-endpoint", "", "`URL` with {source_id} and {message_id} that says what became of a message")
	fields.Int("rate-limit", 0, "POSTs in any window, at most; 0 for no limit")
	fields.Float64("window-size", 1, "`SECONDS` of a window")
	fields.Float64("retry-after", 5, "`SECONDS` between attempts")
	fields.Int("max-retries", 5, "attempts after the first")
	fields.Float64(timeoutFlag, 30, "`SECONDS` that a POST may take")
	fields.String("order", "none", "none, source or receiver")
	fields.String("unknown-outcome", "at_least_once", "at_least_once or at_most_once")
	fields.Float64("ttl", 0, "`SECONDS` that a message may take to its response; 0 for no limit")
	fields.Bool("paused", false, "send nothing")
	cmd.Flags().AddFlagSet(fields)
	file := cmd.Flags().String("file", "", "`FILE` with the configuration as JSON; - for standard input")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		body := map[string]any{}
		if *file != "" {
			if body, err = readBody(cmd, *file); err != nil {
				return err
			}
		}
		if err := overlay(body, fields); err != nil {
			return err
		}
		return show(r, cmd, http.MethodPut, args[0], body)
	}
	return cmd
}

func readBody(cmd *cobra.Command, file string) (body map[string]any, err error) {
	data, err := remote.ReadFile(cmd, file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, cli.Usage(fmt.Errorf("--file %s is not a JSON object: %w", file, err))
	}
	if body == nil {
		return nil, cli.Usage(fmt.Errorf("--file %s is null and not a JSON object: write the receiver's fields, or {}", file))
	}
	return body, nil
}

// overlay sets the fields whose flags were given.
func overlay(body map[string]any, fields *pflag.FlagSet) (err error) {
	fields.VisitAll(func(f *pflag.Flag) {
		field, text := strings.ReplaceAll(f.Name, "-", "_"), f.Value.String()
		if f.Name == timeoutFlag {
			field = "timeout"
		}
		switch {
		case !f.Changed:
		case f.Value.Type() == "string":
			body[field] = text
		case json.Valid([]byte(text)): // numbers and booleans are written as JSON writes them
			body[field] = json.RawMessage(text)
		default:
			err = cli.Usage(fmt.Errorf("--%s %s is no number", f.Name, text))
		}
	})
	return err
}
