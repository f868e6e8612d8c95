package send

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd/remote"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/relay/client"
)

const (
	// chunkLines and chunkBytes bound one request of a batch; the relay takes 1,000 lines and 64 MiB.
	chunkLines = 1000
	chunkBytes = 16 << 20
)

// sendBatch sends the messages of a file.
func sendBatch(r *remote.Relay, cmd *cobra.Command, path string) error {
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
			cli.Tell(cmd.ErrOrStderr(), "%s of %s messages were sent. Send the file again: those that are known are not delivered again.\n",
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

// sendChunk sends some lines and reports what became of each, and how many were refused.
func sendChunk(r *remote.Relay, cmd *cobra.Command, bar *progress.Bar, before int, lines [][]byte) (refused int, err error) {
	answer, err := r.Ask(cmd.Context(), r.Timeout, http.MethodPost, "/v1/messages:batch", bytes.Join(lines, []byte("\n")), nil)
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
			cli.Tell(errOut, "message %d was refused: %s\n", before+i+1, result.Error.Message)
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
