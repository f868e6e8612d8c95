package registry

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/internal/progress"
)

// receiver is what the relay shows of a receiver.
type receiver struct {
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
		Waiting    *Waiting `json:"waiting"`
	} `json:"state"`
}

// NewReceivers is jetpull relay receivers.
func NewReceivers(r *remote.Server) *cobra.Command {
	return kind[receiver]{
		relay: r, names: "receivers",
		show: "Show a receiver, with its breaker, window and backlog",
		rm:   "Remove a receiver; what waits for it fails",
		put: &cobra.Command{
			Use:   "put NAME",
			Short: "Configure a receiver, a new one or one that there is",
			Long: `Create or change a receiver. A setting that neither --file nor a flag gives has the
relay's default, except secrets: those of the receiver stay. Secrets come by --file,
since other users of the machine can see a command line.`,
			Example: `  jetpull relay receivers put ci --post-endpoint http://127.0.0.1:9090/hook --rate-limit 200 --window-size 10
  jetpull relay receivers put ci --file ci.json --paused`,
		},
		fields: receiverFields(),
		header: []string{"name", "endpoint", "limit", "order", "state"},
		row:    func(v *receiver) []string { return []string{v.Name, v.PostEndpoint, v.limit(), v.Order, v.state()} },
		text:   (*receiver).text,
	}.command()
}

// ReceiverPath is the path of a receiver in the relay's interface.
func ReceiverPath(name string) string { return kind[receiver]{names: "receivers"}.path(name) }

func (v *receiver) limit() string {
	if v.RateLimit == 0 {
		return "none"
	}
	return fmt.Sprintf("%s in %g s", progress.Count(v.RateLimit), v.Window)
}

// state is why a receiver gets nothing now, or active.
func (v *receiver) state() string {
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

func (v *receiver) text() string {
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

func receiverFields() *pflag.FlagSet {
	fields := pflag.NewFlagSet("", pflag.ContinueOnError)
	fields.String("post-endpoint", "", "`URL` that messages are POSTed to")
	fields.String("status-endpoint", "", "`URL` with {source_id} and {message_id} that returns the result of a message")
	fields.Int("rate-limit", 0, "POSTs in any window, at most; 0 for no limit")
	fields.Float64("window-size", 1, "`SECONDS` of a window")
	fields.Float64("retry-after", 5, "`SECONDS` between attempts")
	fields.Int("max-retries", 5, "attempts after the first")
	fields.Float64(timeoutFlag, 30, "`SECONDS` that a POST may take")
	fields.String("order", "none", "none, source or receiver")
	fields.String("unknown-outcome", "at_least_once", "at_least_once or at_most_once")
	fields.Float64("ttl", 0, "`SECONDS` that a message may take to its response; 0 for no limit")
	fields.Bool("paused", false, "send nothing")
	return fields
}

// Waiting is why a message, or all of a receiver, is not sent now.
type Waiting struct {
	For   string    `json:"for"`
	Until time.Time `json:"until"`
}

// reasons are the words for what the relay names.
var reasons = map[string]string{
	"disabled": "a new configuration: the receiver answered 410 and is disabled until it is put again",
	"pause":    "the end of the receiver's pause",
	"order":    "an earlier message of its source",
	"breaker":  "the next probe of the receiver's breaker, which failures in a row have opened",
	"hold":     "the time that the receiver asked for by Retry-After",
	"rate":     "a place in the receiver's rate window",
	"retry":    "its next attempt",
}

// Text says what is waited for.
func (w *Waiting) Text() string {
	text := cmp.Or(reasons[w.For], w.For)
	if !w.Until.IsZero() {
		text += ", until " + w.Until.Local().Format(time.DateTime)
	}
	return text
}
