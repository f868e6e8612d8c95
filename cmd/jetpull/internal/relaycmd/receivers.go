package relaycmd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/relay/client"
)

// receiverView is what the relay shows of a receiver.
type receiverView struct {
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
		Breaker    string   `json:"breaker"`
		WindowUsed int      `json:"window_used"`
		InFlight   int      `json:"in_flight"`
		Disabled   bool     `json:"disabled"`
		Backlog    int      `json:"backlog"`
		Oldest     float64  `json:"oldest"`
		Waiting    *waiting `json:"waiting"`
	} `json:"state"`
}

// newReceiversCommand is jetpull relay receivers.
func newReceiversCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{Use: "receivers", Short: "Show and configure receivers", Args: cobra.NoArgs}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List the receivers", Args: cobra.NoArgs, RunE: t.listReceivers},
		&cobra.Command{Use: "show NAME", Short: "Show a receiver, with its breaker, window and backlog", Args: cobra.ExactArgs(1), RunE: t.showReceiver},
		newPutCommand(t),
		&cobra.Command{Use: "rm NAME", Short: "Remove a receiver; what waits for it fails", Args: cobra.ExactArgs(1), RunE: t.removeReceiver})
	return cmd
}

func receiverPath(name string) string { return "/v1/receivers/" + client.PathEscape(name) }

func (t *target) listReceivers(cmd *cobra.Command, _ []string) error {
	var answer struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := t.call(cmd.Context(), 0, http.MethodGet, "/v1/receivers", nil, &answer); err != nil {
		return err
	}
	var rows [][]string
	for _, raw := range answer.Items {
		var r receiverView
		if err := json.Unmarshal(raw, &r); err != nil {
			return fmt.Errorf("read the list of receivers: %w", err)
		}
		if err := t.print(cmd.OutOrStdout(), raw, func() error { rows = append(rows, r.row()); return nil }); err != nil {
			return err
		}
	}
	if *t.json {
		return nil
	}
	return progress.Table(cmd.OutOrStdout(), []string{"name", "endpoint", "limit", "order", "state"}, rows)
}

func (r *receiverView) limit() string {
	if r.RateLimit == 0 {
		return "none"
	}
	return fmt.Sprintf("%s in %g s", progress.Count(r.RateLimit), r.Window)
}

func (r *receiverView) timeToLive() string {
	if r.TTL == 0 {
		return "none"
	}
	return fmt.Sprintf("%g s", r.TTL)
}

func (r *receiverView) row() []string {
	return []string{r.Name, r.PostEndpoint, r.limit(), r.Order, r.state()}
}

// state is why a receiver gets nothing now, or active.
func (r *receiverView) state() string {
	switch {
	case r.State != nil && r.State.Disabled:
		return "disabled by 410"
	case r.Paused:
		return "paused"
	case r.State != nil && r.State.Breaker != "closed":
		return "breaker " + strings.ReplaceAll(r.State.Breaker, "_", " ")
	}
	return "active"
}

func (t *target) showReceiver(cmd *cobra.Command, args []string) error {
	var r receiverView
	raw, err := t.fetch(cmd.Context(), 0, http.MethodGet, receiverPath(args[0]), nil, &r)
	if err != nil {
		return err
	}
	return t.print(cmd.OutOrStdout(), raw, func() error { return r.write(cmd.OutOrStdout()) })
}

func (r *receiverView) write(out io.Writer) error {
	rows := [][]string{
		{"post endpoint", r.PostEndpoint},
		{"status endpoint", r.StatusEndpoint},
		{"limit", r.limit()},
		{"retries", fmt.Sprintf("%d, %g s apart", r.MaxRetries, r.RetryAfter)},
		{"timeout", fmt.Sprintf("%g s", r.Timeout)},
		{"order", r.Order},
		{"unknown outcome", r.UnknownOutcome},
		{"time to live", r.timeToLive()},
		{"secrets", strconv.Itoa(r.Secrets)},
		{"paused", strconv.FormatBool(r.Paused)},
	}
	if s := r.State; s != nil {
		rows = append(rows, []string{"breaker", s.Breaker}, []string{"window used", strconv.Itoa(s.WindowUsed)}, []string{"in flight", strconv.Itoa(s.InFlight)},
			[]string{"disabled", strconv.FormatBool(s.Disabled)}, []string{"backlog", progress.Count(s.Backlog)}, []string{"oldest", fmt.Sprintf("%.1f s", s.Oldest)})
		if s.Waiting != nil {
			rows = append(rows, []string{"waits for", s.Waiting.text()})
		}
	}
	return progress.Table(out, []string{r.Name, ""}, rows)
}

// newPutCommand is jetpull relay receivers put.
func newPutCommand(t *target) *cobra.Command {
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
	flags := cmd.Flags()
	file := flags.String("file", "", "`FILE` with the configuration as JSON; - for standard input")
	flags.String("post-endpoint", "", "`URL` that messages are POSTed to")
	flags.String("status-endpoint", "", "`URL` with {source_id} and {message_id} that says what became of a message")
	flags.Int("rate-limit", 0, "POSTs in any window, at most; 0 for no limit")
	flags.Float64("window-size", 1, "`SECONDS` of a window")
	flags.Float64("retry-after", 5, "`SECONDS` between attempts")
	flags.Int("max-retries", 5, "attempts after the first")
	flags.Float64("timeout-of-post", 30, "`SECONDS` that a POST may take")
	flags.String("order", "none", "none, source or receiver")
	flags.String("unknown-outcome", "at_least_once", "at_least_once or at_most_once")
	flags.Float64("ttl", 0, "`SECONDS` that a message may take to its response; 0 for no limit")
	flags.Bool("paused", false, "send nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body := map[string]any{}
		if *file != "" {
			data, err := readFile(cmd, *file)
			if err != nil {
				return fmt.Errorf("read the configuration: %w", err)
			}
			if err := json.Unmarshal(data, &body); err != nil {
				return cli.Usage(fmt.Errorf("--file %s is not a JSON object: %w", *file, err))
			}
			if body == nil {
				return cli.Usage(fmt.Errorf("--file %s is null and not a JSON object: write the receiver's fields, or {}", *file))
			}
		}
		if err := overlay(cmd, body); err != nil {
			return err
		}
		return t.putReceiver(cmd, args[0], body)
	}
	return cmd
}

// fields are the receiver's fields by the flags that set them.
var fields = map[string]string{
	"post-endpoint": "post_endpoint", "status-endpoint": "status_endpoint", "rate-limit": "rate_limit", "window-size": "window_size",
	"retry-after": "retry_after", "max-retries": "max_retries", "timeout-of-post": "timeout", "order": "order", "unknown-outcome": "unknown_outcome",
	"ttl": "ttl", "paused": "paused",
}

// overlay sets the fields whose flags were given.
func overlay(cmd *cobra.Command, body map[string]any) error {
	for flag, field := range fields {
		given := cmd.Flags().Lookup(flag)
		if !given.Changed {
			continue
		}
		if given.Value.Type() == "string" {
			body[field] = given.Value.String()
			continue
		}
		// Numbers and booleans are written as JSON writes them.
		var value any
		if err := json.Unmarshal([]byte(given.Value.String()), &value); err != nil {
			return cli.Usage(fmt.Errorf("--%s %s is no number", flag, given.Value))
		}
		body[field] = value
	}
	return nil
}

func (t *target) putReceiver(cmd *cobra.Command, name string, body map[string]any) error {
	var r receiverView
	raw, err := t.fetch(cmd.Context(), 0, http.MethodPut, receiverPath(name), body, &r)
	if err != nil {
		return err
	}
	return t.print(cmd.OutOrStdout(), raw, func() error { return r.write(cmd.OutOrStdout()) })
}

func (t *target) removeReceiver(cmd *cobra.Command, args []string) error {
	return t.call(cmd.Context(), 0, http.MethodDelete, receiverPath(args[0]), nil, nil)
}
