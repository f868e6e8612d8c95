package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/progress"
)

var jobsPath = words["CONSUMER"].Item + "/jobs"

// job reads the job of a message.
func job(c *remote.Call, message string) (id string, job json.RawMessage, err error) {
	path := c.To(jobsPath) + "?message=" + url.QueryEscape(message)
	jobs, err := c.Items(c.Cmd.Context(), path, 1)
	switch {
	case err != nil:
		return "", nil, err
	case len(jobs) == 0:
		return "", nil, fmt.Errorf("consumer %q has no job of message %q: it began after it, does not get its event type, or the job was deleted",
			c.Names["CONSUMER"], message)
	}
	var view struct{ ID string }
	err = json.Unmarshal(jobs[0], &view)
	return view.ID, jobs[0], err
}

func showJob(c *remote.Call) error {
	_, answer, err := job(c, c.Names["MESSAGE"])
	if err != nil {
		return err
	}
	return c.Show(answer)
}

func attempts(c *remote.Call) error {
	id, _, err := job(c, c.Names["MESSAGE"])
	if err != nil {
		return err
	}
	c.Path = words["CONSUMER"].Item + "/job/" + httpserve.EscapeID(id) + "/attempts"
	return c.List()
}

// TokenVariables are the environment variables with the tokens of a channel, a producer and a consumer.
var TokenVariables = []string{"JETPULL_BROKER_CHANNEL_TOKEN", "JETPULL_BROKER_PRODUCER_TOKEN", "JETPULL_BROKER_CONSUMER_TOKEN"}

// tokens are those that the broker wants unless there is an admin token: of the environment, or as far as the broker shows them.
func tokens(c *remote.Call) (header http.Header, err error) {
	header = http.Header{}
	for _, variable := range TokenVariables {
		word := strings.TrimSuffix(strings.TrimPrefix(variable, "JETPULL_BROKER_"), "_TOKEN")
		name, known := "X-Broker-"+word+"-Token", os.Getenv(variable)
		if known != "" {
			header.Set(name, known)
		}
		if c.Names[word] == "" || known != "" {
			continue
		}
		var view struct{ Token string }
		if _, err := c.Get(c.Cmd.Context(), c.To(words[word].Item), &view); err != nil && (word != "PRODUCER" || !errors.Is(err, client.ErrNotFound)) {
			return nil, err // a producer can be deleted before its scheduled messages
		}
		header.Set(name, view.Token)
	}
	return header, nil
}

func cancelScheduled(c *remote.Call) error {
	path := c.To(c.Path)
	var message struct{ ProducedBy string }
	if _, err := c.Get(c.Cmd.Context(), path, &message); err != nil {
		return err
	}
	c.Names["PRODUCER"] = message.ProducedBy
	header, err := tokens(c)
	if err != nil {
		return err
	}
	header.Set("X-Broker-Producer-Id", message.ProducedBy)
	_, _, err = c.Ask(c.Cmd.Context(), remote.Request{Method: http.MethodDelete, Path: path, Header: header}, nil)
	return err
}

func purge(c *remote.Call) error {
	messages := c.Args[2:]
	if c.Is("all") == (len(messages) > 0) {
		return cli.Usage(errors.New("give messages, whose IDs jobs ls shows, or --all"))
	}
	header, err := tokens(c)
	if err != nil {
		return err
	}
	remove := func(what string, view any) (json.RawMessage, error) {
		r := remote.Request{Method: http.MethodDelete, Path: c.To(words["CONSUMER"].Item) + what, Header: header}
		answer, _, err := c.Ask(c.Cmd.Context(), r, view)
		return answer, err
	}
	if len(messages) == 0 {
		var purged struct{ DeletedCount int }
		answer, err := remove("/dlq", &purged)
		if err != nil {
			return err
		}
		return cli.Answer(c.Cmd, *c.JSON, answer, "%s deleted\n", progress.Plural(purged.DeletedCount, "dead job"))
	}
	for _, c.Names["MESSAGE"] = range messages {
		id, view, err := job(c, c.Names["MESSAGE"])
		var has struct{ Status string }
		if err == nil && json.Unmarshal(view, &has) == nil && has.Status != "DEAD" {
			err = fmt.Errorf("its job is not dead, but %s", has.Status)
		}
		if err == nil {
			_, err = remove("/job/"+id, nil)
		}
		if err != nil {
			return fmt.Errorf("message %q: %w", c.Names["MESSAGE"], err)
		}
	}
	return nil
}

func purgeQueued(c *remote.Call) error {
	_, err := c.Operate(c.To(words["CONSUMER"].Item+"/purge"), map[string]any{})
	return err
}

func startReplay(c *remote.Call) error {
	_, err := c.Operate(c.To(words["CONSUMER"].Item+"/replay"), c.Given())
	return err
}
