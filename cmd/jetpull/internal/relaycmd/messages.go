package relaycmd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/relay/client"
)

// maxWait is the longest wait for a response that the relay takes.
const maxWait = 5 * time.Minute

// newSendCommand is jetpull relay send.
func newSendCommand(t *target) *cobra.Command {
	var m client.Message
	var headers []string
	var text bool
	var batch string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "send [PAYLOAD]",
		Short: "Send a message, or a file of them",
		Long: `Send a message to a receiver. The payload is JSON, from the argument or from
standard input. A message that was sent before under the same --source and --id
is not delivered again: its present status is printed.

With --batch the messages are lines of a file, each as POST /v1/messages takes it.`,
		Example: `  jetpull relay send --source repo --id push-1 --receiver ci --wait 30s '{"branch": "main"}'
  jetpull relay send --batch events.ndjson`,
		Args: cobra.MaximumNArgs(1),
	}
	flags := cmd.Flags()
	flags.StringVar(&m.Source, "source", "", "`ID` of the source")
	flags.StringVar(&m.ID, "id", "", "`ID` of the message, one of its own for each")
	flags.StringVar(&m.Receiver, "receiver", "", "`NAME` of the receiver")
	cli.HeaderFlag(flags, &headers)
	flags.BoolVar(&text, "text", false, "send the payload as a JSON string, whatever it is")
	flags.DurationVar(&wait, "wait", 0, "wait so long for the response, at most 5m")
	flags.StringVar(&batch, "batch", "", "`FILE` with a message on each line; - for standard input")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if batch != "" {
			if len(args) > 0 || m.Source+m.ID+m.Receiver != "" || text || wait != 0 || headers != nil {
				return cli.Usage(errors.New("--batch has whole messages: give neither PAYLOAD nor flags of a message"))
			}
			return t.sendBatch(cmd, batch)
		}
		if err := complete(cmd, &m, args, headers, text); err != nil {
			return err
		}
		path := "/v1/messages"
		if wait != 0 {
			path += "?wait=" + url.QueryEscape(wait.String())
		}
		return t.told(cmd, wait, http.MethodPost, path, m)
	}
	return cmd
}

// complete makes the message that the command line describes.
func complete(cmd *cobra.Command, m *client.Message, args, headers []string, text bool) error {
	for flag, value := range map[string]string{"--source": m.Source, "--id": m.ID, "--receiver": m.Receiver} {
		if value == "" {
			return cli.Usage(fmt.Errorf("%s is missing", flag))
		}
	}
	payload := []byte(strings.Join(args, ""))
	if len(args) == 0 {
		var err error
		if payload, err = readFile(cmd, "-"); err != nil {
			return fmt.Errorf("read the payload: %w", err)
		}
	}
	switch {
	case text:
		m.Payload = string(payload)
	case !json.Valid(payload):
		return cli.Usage(fmt.Errorf("the payload %.40q is not JSON; give --text to send it as a string", payload))
	default:
		m.Payload = json.RawMessage(payload)
	}
	for _, header := range headers {
		name, value, err := cli.Header(header)
		if err != nil {
			return err
		}
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[name] = value
	}
	return nil
}

// told makes a request that is answered with what became of a message, and prints that.
func (t *target) told(cmd *cobra.Command, wait time.Duration, method, path string, body any) error {
	if wait < 0 || wait > maxWait {
		return cli.Usage(fmt.Errorf("--wait %s is not from 0 to %s", wait, maxWait))
	}
	var r client.Result
	raw, err := t.fetch(cmd.Context(), wait, method, path, body, &r)
	if err != nil {
		return err
	}
	err = t.print(cmd.OutOrStdout(), raw, func() error {
		line := r.Status
		if r.Responded() {
			line += "\n" + progress.Escape(string(r.Response))
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), line)
		return err
	})
	switch {
	case err != nil:
		return err
	case r.Error != nil:
		return &failedError{fmt.Sprintf("the message has failed: %s: %s", r.Error.Code, r.Error.Message)}
	case wait > 0 && !r.Responded():
		return fmt.Errorf("no response within %s: %w", wait, cli.ErrShort)
	}
	return nil
}

// newStatusCommand is jetpull relay status.
func newStatusCommand(t *target) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "status SOURCE ID",
		Short: "Show where a message is, with each attempt",
		Long: `Show where a message is, with each attempt. With --wait the response is printed
instead, once it is there.`,
		Args: cobra.ExactArgs(2),
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so long for the response, at most 5m")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path := "/v1/messages/" + client.PathEscape(args[0]) + "/" + client.PathEscape(args[1])
		if wait != 0 {
			return t.told(cmd, wait, http.MethodGet, path+"/response?wait="+url.QueryEscape(wait.String()), nil)
		}
		var m messageView
		raw, err := t.fetch(cmd.Context(), 0, http.MethodGet, path, nil, &m)
		if err != nil {
			return err
		}
		return t.print(cmd.OutOrStdout(), raw, func() error { return m.write(cmd.OutOrStdout()) })
	}
	return cmd
}

// messageView is what the relay shows of a message.
type messageView struct {
	client.Result
	Receiver string    `json:"receiver"`
	Arrived  time.Time `json:"arrived"`
	Waiting  *waiting  `json:"waiting"`
	Attempts []struct {
		Number   int       `json:"number"`
		Time     time.Time `json:"time"`
		Code     int       `json:"code"`
		Error    string    `json:"error"`
		Duration float64   `json:"duration"`
	} `json:"attempts"`
}

// waiting is why a message, or all of a receiver, is not sent now.
type waiting struct {
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

func (w *waiting) text() string {
	text := cmp.Or(reasons[w.For], w.For)
	if !w.Until.IsZero() {
		text += ", until " + w.Until.Local().Format(time.DateTime)
	}
	return text
}

func (m *messageView) write(out io.Writer) error {
	if _, err := fmt.Fprintf(out, "%s to %s, arrived %s\n", m.Status, progress.Readable(m.Receiver), m.Arrived.Local().Format(time.DateTime)); err != nil {
		return err
	}
	if m.Error != nil {
		if _, err := fmt.Fprintf(out, "%s at %s: %s\n", m.Error.Code, m.Error.Stage, progress.Escape(m.Error.Message)); err != nil {
			return err
		}
	}
	if m.Waiting != nil {
		if _, err := fmt.Fprintf(out, "waits for %s\n", progress.Readable(m.Waiting.text())); err != nil {
			return err
		}
	}
	var rows [][]string
	for _, a := range m.Attempts {
		code := ""
		if a.Code > 0 {
			code = strconv.Itoa(a.Code)
		}
		rows = append(rows, []string{
			strconv.Itoa(a.Number), a.Time.Local().Format(time.DateTime), code, progress.Short(time.Duration(a.Duration * float64(time.Second))), a.Error,
		})
	}
	if len(rows) > 0 {
		if err := progress.Table(out, []string{">attempt", "time", "status", ">took", "error"}, rows); err != nil {
			return err
		}
	}
	if m.Responded() && string(m.Response) != "null" {
		_, err := fmt.Fprintf(out, "%s\n", progress.Escape(string(m.Response)))
		return err
	}
	return nil
}
