package relaycmd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/relay/client"
)

// maxWait is the longest wait for a response that the relay takes.
const maxWait = 5 * time.Minute

// waitFlag adds the flag --wait.
func waitFlag(flags *pflag.FlagSet) *time.Duration {
	return flags.Duration("wait", 0, "wait for the response for a `DURATION`, at most 5m; without a response in time it fails with exit code 4; 0: do not wait")
}

// sendVerb is jetpull relay send.
func sendVerb() remote.Verb {
	var m client.Message
	var headers []string
	var text bool
	var wait *time.Duration
	return remote.Verb{
		Use: "send [PAYLOAD]", Short: "Send a message",
		Long: `Send a message to a receiver. The payload is JSON, from the argument or from
standard input. A message that was sent before under the same --source and --id
is not delivered again, and its current status is printed. POST /v1/messages:batch
takes up to 1,000 messages.`,
		Example: `  jetpull relay send --source repo --id push-1 --receiver ci --wait 30s '{"branch": "main"}'`,
		Flags: func(flags *pflag.FlagSet) {
			flags.StringVar(&m.Source, "source", "", "`ID` of the source; required")
			flags.StringVar(&m.ID, "id", "", "`ID` of the message, unique for its source; required")
			flags.StringVar(&m.Receiver, "receiver", "", "`NAME` of the receiver; required")
			cli.HeaderFlag(flags, &headers)
			flags.BoolVar(&text, "text", false, "send the payload as a JSON string, whatever it is")
			wait = waitFlag(flags)
		},
		Run: func(c *remote.Call) error {
			if err := complete(c, &m, headers, text); err != nil {
				return err
			}
			return respond(c, *wait, http.MethodPost, "/v1/messages", m)
		},
	}
}

// complete makes the message that the command line describes.
func complete(c *remote.Call, m *client.Message, headers []string, text bool) (err error) {
	for flag, value := range map[string]string{"--source": m.Source, "--id": m.ID, "--receiver": m.Receiver} {
		if value == "" {
			return cli.Usage(fmt.Errorf("%s is missing", flag))
		}
	}
	payload := []byte(c.Names["PAYLOAD"])
	if len(c.Args) == 0 {
		if payload, err = io.ReadAll(c.Cmd.InOrStdin()); err != nil {
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
func respond(c *remote.Call, wait time.Duration, method, path string, body any) error {
	if wait < 0 || wait > maxWait {
		return cli.Usage(fmt.Errorf("--wait %s is not from 0 to %s", wait, maxWait))
	}
	if wait > 0 {
		path += "?wait=" + url.QueryEscape(wait.String())
	}
	var result client.Result
	answer, _, err := c.Ask(c.Cmd.Context(), remote.Request{Method: method, Path: path, Body: body, Wait: wait}, &result)
	if err != nil {
		return err
	}
	text := result.Status + "\n"
	if result.Responded() {
		text += progress.Escape(string(result.Response)) + "\n"
	}
	err = c.Print(c.Cmd, answer, "%s", text)
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

// statusVerb is jetpull relay status.
var statusVerb = remote.Verb{
	Use: "status SOURCE MESSAGE", Short: "Show the state of a message, with each attempt",
	Long: `Show the state of a message, with each attempt. With --wait it waits for the
response and prints that instead.`,
	Path:  "/v1/messages/SOURCE/MESSAGE",
	Flags: func(flags *pflag.FlagSet) { waitFlag(flags) },
	Run: func(c *remote.Call) error {
		wait, err := c.Cmd.Flags().GetDuration("wait")
		switch {
		case err != nil:
			return err
		case wait != 0:
			return respond(c, wait, http.MethodGet, c.To(c.Path)+"/response", nil)
		}
		return c.Request()
	},
}
