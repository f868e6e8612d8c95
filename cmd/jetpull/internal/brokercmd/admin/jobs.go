package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

var jobsPath = words["CONSUMER"].item + "/jobs"

// job reads the job of a message.
func (c *call) job(ctx context.Context, message string) (id string, job json.RawMessage, err error) {
	path := c.to(jobsPath) + "?message=" + url.QueryEscape(message)
	jobs, err := c.pages(ctx, path, 1)
	switch {
	case err != nil:
		return "", nil, err
	case len(jobs) == 0:
		return "", nil, fmt.Errorf("consumer %q has no job of message %q: it began after it, does not get its event type, or the job was deleted", c.names["CONSUMER"], message)
	}
	var view struct{ ID string }
	err = json.Unmarshal(jobs[0], &view)
	return view.ID, jobs[0], err
}

func (c *call) showJob() error {
	_, job, err := c.job(c.cmd.Context(), c.names["MESSAGE"])
	if err != nil {
		return err
	}
	return c.show(job)
}

func (c *call) attempts() error {
	id, _, err := c.job(c.cmd.Context(), c.names["MESSAGE"])
	if err != nil {
		return err
	}
	c.path = words["CONSUMER"].item + "/job/" + httpserve.EscapeID(id) + "/attempts"
	return c.list()
}

// tokens are those that the broker wants unless there is an admin token, as far as it shows them.
func (c *call) tokens() (header http.Header, err error) {
	header = http.Header{}
	for name, word := range map[string]string{"X-Broker-Channel-Token": "CHANNEL", "X-Broker-Consumer-Token": "CONSUMER", "X-Broker-Producer-Token": "PRODUCER"} {
		if c.names[word] == "" {
			continue
		}
		var view struct{ Token string }
		if _, err := c.Get(c.cmd.Context(), c.to(words[word].item), &view); err != nil && (word != "PRODUCER" || !errors.Is(err, client.ErrNotFound)) {
			return nil, err // a producer can be deleted before its scheduled messages
		}
		header.Set(name, view.Token)
	}
	return header, nil
}

func (c *call) cancelScheduled() error {
	path := c.to(words["SCHEDULED"].item)
	var message struct{ ProducedBy string }
	if _, err := c.Get(c.cmd.Context(), path, &message); err != nil {
		return err
	}
	c.names["PRODUCER"] = message.ProducedBy
	header, err := c.tokens()
	if err != nil {
		return err
	}
	header.Set("X-Broker-Producer-Id", message.ProducedBy)
	_, _, err = c.Ask(c.cmd.Context(), remote.Request{Method: http.MethodDelete, Path: path, Header: header}, nil)
	return err
}

// chosen are the messages that are named, or none for all. One of both has to be given.
func (c *call) chosen() ([]string, error) {
	all, err := c.cmd.Flags().GetBool("all")
	messages := c.args[2:]
	if err == nil && all == (len(messages) > 0) {
		err = cli.Usage(errors.New("give messages, whose IDs jobs ls shows, or --all"))
	}
	return messages, err
}

func (c *call) purge() error {
	messages, err := c.chosen()
	if err != nil {
		return err
	}
	header, err := c.tokens()
	if err != nil {
		return err
	}
	if len(messages) == 0 {
		var purged struct{ DeletedCount int }
		answer, _, err := c.Ask(c.cmd.Context(), remote.Request{Method: http.MethodDelete, Path: c.to(words["CONSUMER"].item) + "/dlq", Header: header}, &purged)
		if err != nil {
			return err
		}
		return c.Print(c.cmd, answer, fmt.Sprintf("%s dead jobs were deleted\n", progress.Count(purged.DeletedCount)))
	}
	for _, message := range messages {
		c.names["MESSAGE"] = message
		id, _, err := c.job(c.cmd.Context(), message)
		if err == nil {
			_, _, err = c.Ask(c.cmd.Context(), remote.Request{Method: http.MethodDelete, Path: c.to(words["CONSUMER"].item) + "/job/" + id, Header: header}, nil)
		}
		if err != nil {
			return fmt.Errorf("message %q: %w", message, err)
		}
	}
	return nil
}

// requeue is a replay of dead jobs: of all, or of one after the other.
func (c *call) requeue() error {
	messages, err := c.chosen()
	if err != nil {
		return err
	}
	if len(messages) == 0 {
		_, err := c.replay(map[string]any{"Status": "DEAD"})
		return err
	}
	for _, message := range messages {
		c.names["MESSAGE"] = message
		jobs, err := c.replay(map[string]any{"Status": "DEAD", "Message": message})
		if err == nil && jobs == 0 {
			err = errors.New("its job is not dead")
		}
		if err != nil {
			return fmt.Errorf("message %q: %w", message, err)
		}
	}
	return nil
}

func (c *call) startReplay() error {
	body := map[string]any{}
	var err error
	c.cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		switch name := f.Name; {
		case !f.Changed, name == "rate", name == "dry-run", name == "detach":
		case name == "metadata":
			body[name], err = c.cmd.Flags().GetStringToString(name)
		default:
			body[f.Name] = f.Value.String()
		}
	})
	if err != nil {
		return err
	}
	_, err = c.replay(body)
	return err
}

// replay starts a replay and follows it to its end, or counts the jobs that it is for. It returns their number.
func (c *call) replay(body map[string]any) (jobs int, err error) {
	flags := c.cmd.Flags()
	rate, err1 := flags.GetFloat64("rate")
	dry, err2 := flags.GetBool("dry-run")
	detach, err3 := flags.GetBool("detach")
	if err := errors.Join(err1, err2, err3); err != nil {
		return 0, err
	}
	body["Rate"], body["DryRun"] = rate, dry
	var counted struct{ Count int }
	var view any
	if dry {
		view = &counted
	}
	answer, got, err := c.Ask(c.cmd.Context(), remote.Request{Method: http.MethodPost, Path: c.to(words["CONSUMER"].item) + "/replay", Body: body}, view)
	switch {
	case err != nil:
		return 0, err
	case dry:
		return counted.Count, c.Print(c.cmd, answer, progress.Count(counted.Count)+" jobs\n")
	}
	return c.follow(got.Get("Location"), !detach)
}

func (c *call) replayStatus() error {
	follow, err := c.cmd.Flags().GetBool("follow")
	if err != nil {
		return err
	}
	_, err = c.follow(c.to(c.path), follow)
	return err
}

// running is the state of a replay that has not ended.
const running = "RUNNING"

// follow prints a replay, at its end if it is to wait for that, and returns the number of its jobs.
func (c *call) follow(path string, wait bool) (jobs int, err error) {
	var r struct {
		ID, State                string
		Count, Replayed, Skipped int
	}
	answer, err := c.Get(c.cmd.Context(), path, &r)
	if err != nil {
		return 0, err
	}
	if wait && r.State == running {
		which := fmt.Sprintf("%s %s %s", c.names["CHANNEL"], c.names["CONSUMER"], r.ID)
		answer, err = c.Follow(c.cmd, remote.Operation{
			Verb: "replay", Path: path, Follow: "jetpull broker replay status --follow " + which, Cancel: "jetpull broker replay cancel " + which, Matched: r.Count,
			Done: func() (int, bool) { return r.Replayed + r.Skipped, r.State == running },
		}, &r)
		if err != nil {
			return 0, err
		}
	}
	return r.Count, c.Print(c.cmd, answer, fmt.Sprintf("replay %s: %s, %s of %s jobs\n", r.ID, r.State, progress.Count(r.Replayed), progress.Count(r.Count)))
}
