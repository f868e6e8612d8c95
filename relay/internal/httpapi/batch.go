package httpapi

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/relay/internal/machine"
)

const (
	// maxBatch is the most messages in a batch, and maxBatchBody the most bytes.
	maxBatch     = 1000
	maxBatchBody = 64 << 20
)

// batchResult is one line of the answer to a batch.
type batchResult struct {
	Source string         `json:"source_id,omitempty"`
	ID     string         `json:"message_id,omitempty"`
	Status machine.Status `json:"status,omitempty"`
	Error  *errorText     `json:"error,omitempty"`
}

// postBatch stores up to 1,000 messages, in their order.
func (a *API) postBatch(w http.ResponseWriter, r *http.Request) error {
	lines, err := readLines(http.MaxBytesReader(w, r.Body, maxBatchBody))
	if err != nil {
		return err
	}
	results := make([]batchResult, len(lines))
	verdicts := make([]submitted, len(lines))
	for i, line := range lines {
		err := error(&http.MaxBytesError{Limit: int64(a.opts.MaxBody)})
		if len(line) <= a.opts.MaxBody {
			var m messageBody
			if m, err = parseMessage(line); err == nil {
				verdicts[i], err = a.submit(r, m)
			}
		}
		if err != nil {
			results[i] = failedLine(err)
		}
	}
	for i, verdict := range verdicts {
		if verdict == nil {
			continue
		}
		_, answer, err := verdict()
		results[i] = batchResult{Source: answer.Source, ID: answer.ID, Status: answer.Status}
		if err != nil {
			results[i] = failedLine(err)
		}
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriter(w)
	for i := range results {
		data, err := httpserve.Encode(results[i])
		if err != nil {
			return err
		}
		// The client may be gone; there is nobody left to tell.
		_, _ = out.Write(data)
	}
	_ = out.Flush()
	return nil
}

func failedLine(err error) batchResult {
	text := describe(err).body().Error
	return batchResult{Error: &text}
}

// readLines reads the lines of a batch; empty ones do not count.
func readLines(body io.Reader) ([][]byte, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, readError(err)
	}
	var lines [][]byte
	for line := range bytes.SplitSeq(data, []byte{'\n'}) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			lines = append(lines, line)
		}
	}
	switch {
	case len(lines) == 0:
		return nil, badRequest("the batch is empty: give a message as JSON on each line")
	case len(lines) > maxBatch:
		return nil, &apiError{http.StatusRequestEntityTooLarge, "too_large", errTooMany.Error()}
	}
	return lines, nil
}

var errTooMany = errors.New("the batch has more than 1000 messages")
