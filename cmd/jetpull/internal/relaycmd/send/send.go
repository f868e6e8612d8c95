// Package send implements the commands that send messages to a relay and show their status.
package send

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd/registry"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/relay/client"
)

// maxWait is the longest wait for a response that the relay takes.
const maxWait = 5 * time.Minute

// New is jetpull relay send.
func New(r *remote.Server) *cobra.Command {
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
			return sendBatch(r, cmd, batch)
		}
		if err := complete(cmd, &m, args, headers, text); err != nil {
			return err
		}
		return respond(r, cmd, wait, http.MethodPost, "/v1/messages", m)
	}
	return cmd
}

// complete makes the message that the command line describes.
func complete(cmd *cobra.Command, m *client.Message, args, headers []string, text bool) (err error) {
	for flag, value := range map[string]string{"--source": m.Source, "--id": m.ID, "--receiver": m.Receiver} {
		if value == "" {
			return cli.Usage(fmt.Errorf("%s is missing", flag))
		}
	}
	payload := []byte(strings.Join(args, ""))
	if len(args) == 0 {
		if payload, err = remote.ReadFile(cmd, "-"); err != nil {
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
	m.Headers = map[string]string{}
	for _, header := range headers {
		name, value, err := cli.Header(header)
		if err != nil {
			return err
		}
		m.Headers[name] = value
	}
	return nil
}

// respond makes a request that is answered with where a message is, waits for the response, and prints that.
func respond(r *remote.Server, cmd *cobra.Command, wait time.Duration, method, path string, body any) error {
	if wait < 0 || wait > maxWait {
		return cli.Usage(fmt.Errorf("--wait %s is not from 0 to %s", wait, maxWait))
	}
	if wait > 0 {
		path += "?wait=" + url.QueryEscape(wait.String())
	}
	var result client.Result
	answer, _, err := r.Ask(cmd.Context(), remote.Request{Method: method, Path: path, Body: body, Wait: wait}, &result)
	if err != nil {
		return err
	}
	text := result.Status + "\n"
	if result.Responded() {
		text += progress.Escape(string(result.Response)) + "\n"
	}
	err = r.Print(cmd, answer, text)
	switch {
	case err != nil:
		return err
	case result.Error != nil:
		return cli.Failed("the message has failed: %s: %s", result.Error.Code, result.Error.Message)
	case wait > 0 && !result.Responded():
		return fmt.Errorf("no response within %s: %w", wait, cli.ErrShort)
	}
	return nil
}

// NewStatus is jetpull relay status.
func NewStatus(r *remote.Server) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status SOURCE ID",
		Short: "Show where a message is, with each attempt",
		Long: `Show where a message is, with each attempt. With --wait the response is printed
instead, once it is there.`,
		Args: cobra.ExactArgs(2),
	}
	wait := cmd.Flags().Duration("wait", 0, "wait so long for the response, at most 5m")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path := "/v1/messages/" + client.PathEscape(args[0]) + "/" + client.PathEscape(args[1])
		if *wait != 0 {
			return respond(r, cmd, *wait, http.MethodGet, path+"/response", nil)
		}
		var m message
		answer, err := r.Get(cmd.Context(), path, &m)
		if err != nil {
			return err
		}
		return r.Print(cmd, answer, m.text())
	}
	return cmd
}

// message is what the relay shows of a message.
type message struct {
	client.Result
	Receiver string            `json:"receiver"`
	Arrived  time.Time         `json:"arrived"`
	Waiting  *registry.Waiting `json:"waiting"`
	Attempts []struct {
		Number   int       `json:"number"`
		Time     time.Time `json:"time"`
		Code     int       `json:"code"`
		Error    string    `json:"error"`
		Duration float64   `json:"duration"`
	} `json:"attempts"`
}

func (m *message) text() string {
	text := fmt.Sprintf("%s to %s, arrived %s\n", m.Status, progress.Readable(m.Receiver), m.Arrived.Local().Format(time.DateTime))
	if m.Error != nil {
		text += fmt.Sprintf("%s at %s: %s\n", m.Error.Code, m.Error.Stage, progress.Escape(m.Error.Message))
	}
	if m.Waiting != nil {
		text += fmt.Sprintf("waits for %s\n", progress.Readable(m.Waiting.Text()))
	}
	var rows [][]string
	for _, a := range m.Attempts {
		code := strings.TrimPrefix(fmt.Sprint(a.Code), "0")
		took := progress.Short(time.Duration(a.Duration * float64(time.Second)))
		rows = append(rows, []string{fmt.Sprint(a.Number), a.Time.Local().Format(time.DateTime), code, took, a.Error})
	}
	if len(rows) > 0 {
		text += remote.Table([]string{">attempt", "time", "status", ">took", "error"}, rows)
	}
	if m.Responded() && string(m.Response) != "null" {
		text += progress.Escape(string(m.Response)) + "\n"
	}
	return text
}

const (
	// chunkLines and chunkBytes bound one request of a batch; the relay takes 1,000 lines and 64 MiB.
	chunkLines = 1000
	chunkBytes = 16 << 20
)

// sendBatch sends the messages of a file.
func sendBatch(r *remote.Server, cmd *cobra.Command, path string) error {
	data, err := remote.ReadFile(cmd, path)
	if err != nil {
		return fmt.Errorf("read the messages: %w", err)
	}
	lines := messageLines(data)
	if len(lines) == 0 {
		return cli.Usage(fmt.Errorf("%s has no message: give one as JSON on each line", path))
	}
	bar := progress.New(cmd.ErrOrStderr(), "messages", int64(len(lines)))
	defer bar.Clear()
	refused := 0
	for done := 0; done < len(lines); {
		next := chunk(lines[done:])
		n, err := sendChunk(r, cmd, bar, done, next)
		refused += n
		if err != nil {
			bar.Clear()
			cli.Notice(cmd.ErrOrStderr(), "%s of %s messages were sent. Send the file again: those that are known are not delivered again.\n",
				progress.Count(done), progress.Count(len(lines)))
			return err
		}
		done += len(next)
		bar.Add(len(next))
	}
	bar.Done()
	if refused > 0 {
		return cli.Failed("%s of %s messages were refused", progress.Count(refused), progress.Count(len(lines)))
	}
	return nil
}

// sendChunk sends some lines and reports the result of each, and how many were refused.
func sendChunk(r *remote.Server, cmd *cobra.Command, bar *progress.Bar, before int, lines [][]byte) (refused int, err error) {
	batch := remote.Request{Method: http.MethodPost, Path: "/v1/messages:batch", Body: bytes.Join(lines, []byte("\n")), Wait: r.Timeout}
	answer, _, err := r.Ask(cmd.Context(), batch, nil)
	if err != nil {
		return 0, err
	}
	results := messageLines(answer)
	if len(results) != len(lines) {
		return 0, fmt.Errorf("the relay answered %d lines to %d messages", len(results), len(lines))
	}
	out, errOut := bar.Over(cmd.OutOrStdout()), bar.Over(cmd.ErrOrStderr())
	for i, line := range results {
		var result struct{ Error *client.Failure }
		if err := json.Unmarshal(line, &result); err != nil {
			return refused, fmt.Errorf("read the relay's answer to message %d: %w", before+i+1, err)
		}
		if result.Error != nil {
			refused++
		}
		if *r.JSON {
			if _, err := fmt.Fprintln(out, progress.Escape(string(line))); err != nil {
				return refused, err
			}
		} else if result.Error != nil {
			cli.Notice(errOut, "message %d was refused: %s\n", before+i+1, result.Error.Message)
		}
	}
	return refused, nil
}

// messageLines are the lines that are not empty.
func messageLines(data []byte) (lines [][]byte) {
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			lines = append(lines, line)
		}
	}
	return lines
}

// chunk is what fits one request of what is left.
func chunk(lines [][]byte) [][]byte {
	n, size := 0, 0
	for n < min(len(lines), chunkLines) && (n == 0 || size+len(lines[n]) <= chunkBytes) {
		size += len(lines[n])
		n++
	}
	return lines[:n]
}
