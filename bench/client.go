package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// clientCommand is the hidden first argument under which this program measures turns of its own client, one for each
// line of its stdin. So two builds of the client can be compared in one run.
const clientCommand = "client"

// turnResult is a client process's answer to a Turn.
type turnResult struct {
	Sample Sample `json:"sample"`
	Error  string `json:"error,omitempty"`
}

// serveTurns measures the turns that it reads from in until in ends.
func serveTurns(in io.Reader, out io.Writer) error {
	turns, results := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var t Turn
		if err := turns.Decode(&t); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("client: read a turn: %w", err)
		}
		var result turnResult
		var err error
		if result.Sample, err = play(context.Background(), &t, ours[t.Case]); err != nil {
			result.Error = err.Error()
		}
		if err := results.Encode(result); err != nil {
			return fmt.Errorf("client: answer: %w", err)
		}
	}
}

// play has the process measure a turn.
func (c *child) play(ctx context.Context, t *Turn) (Sample, error) {
	if err := json.NewEncoder(c.stdin).Encode(t); err != nil {
		return Sample{}, fmt.Errorf("send a turn to %v: %w", c.cmd.Args, err)
	}
	var result turnResult
	if err := c.receive(ctx, &result); err != nil {
		return Sample{}, err
	}
	if result.Error != "" {
		return Sample{}, errors.New(result.Error)
	}
	return result.Sample, nil
}
