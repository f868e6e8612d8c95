package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/jetpull/jetpull/bench/measure"
)

// clientCommand is the hidden first argument, before the server's two URLs, under which this program measures turns of its
// own client, one for each line of its stdin. So two builds of the client can be compared in one run.
const clientCommand = "client"

// turnResult is a client process's answer to a Turn.
type turnResult struct {
	Sample measure.Sample `json:"sample"`
	Error  string         `json:"error,omitempty"`
}

// serveTurns measures the turns that it reads from in until in ends.
func serveTurns(urls []string, in io.Reader, out io.Writer) error {
	if len(urls) != 2 {
		return fmt.Errorf("client: want the server's two URLs, not %q", urls)
	}
	links, err := endpoints{Direct: urls[0], Delayed: urls[1]}.connect("bench-client")
	if err != nil {
		return err
	}
	turns, results := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var t measure.Turn
		if err := turns.Decode(&t); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("client: read a turn: %w", err)
		}
		var result turnResult
		if result.Sample, err = measure.PlayOurs(context.Background(), &t, links); err != nil {
			result.Error = err.Error()
		}
		if err := results.Encode(result); err != nil {
			return fmt.Errorf("client: answer: %w", err)
		}
	}
}

// play has the process measure a turn.
func (c *child) play(ctx context.Context, t *measure.Turn) (measure.Sample, error) {
	if err := json.NewEncoder(c.stdin).Encode(t); err != nil {
		return measure.Sample{}, fmt.Errorf("send a turn to %v: %w", c.cmd.Args, err)
	}
	var result turnResult
	if err := c.receive(ctx, &result); err != nil {
		return measure.Sample{}, err
	}
	if result.Error != "" {
		return measure.Sample{}, errors.New(result.Error)
	}
	return result.Sample, nil
}
