package httpapi

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/relay/internal/work"
)

const (
	// maxBatch bounds the messages of a batch, and maxBatchBody its bytes.
	maxBatch     = 1000
	maxBatchBody = 64 << 20
	// maxTogether bounds the messages that are stored together.
	maxTogether = 256
)

type batchResult struct {
	Source string           `json:"source_id,omitempty"`
	ID     string           `json:"message_id,omitempty"`
	Status string           `json:"status,omitempty"`
	Error  *httpserve.Error `json:"error,omitempty"`
}

// postBatch stores up to 1,000 messages, in order. A batch that is refused as a whole may be stored in part. If it is sent again, its stored messages
// are duplicates.
func (a *API) postBatch(w http.ResponseWriter, r *http.Request) error {
	results, err := a.storeLines(r, newLineReader(http.MaxBytesReader(w, r.Body, maxBatchBody), r.ContentLength, a.opts.HTTP.MaxBodyBytes))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	for i := range results {
		data, err := httpserve.Encode(results[i])
		if err != nil {
			return err
		}
		_, _ = w.Write(data) // an error means that the client is gone, so it cannot be reported
	}
	return nil
}

// storeLines stores the messages of a batch. It stores the lines that have been received together, so it keeps only the lines in its buffer while it
// waits for a slow client.
func (a *API) storeLines(r *http.Request, lines lineReader) ([]batchResult, error) {
	results := []batchResult{}
	var offers []work.Offer
	var numbers []int // their line numbers
	flush := func() {
		for i, in := range a.work.Submit(r.Context(), offers) {
			_, body, err := answer(offers[i], in)
			results[numbers[i]] = batchResult{Source: body.Source, ID: body.ID, Status: body.Status}
			if err != nil {
				results[numbers[i]] = batchResult{Error: describe(err)}
			}
		}
		offers, numbers = offers[:0], numbers[:0]
	}
	defer flush() // the last messages, even of a refused batch
	for {
		if len(offers) == maxTogether || !lines.buffered() {
			flush()
		}
		line, err := lines.next()
		switch {
		case errors.Is(err, io.EOF) && len(results) == 0:
			return nil, httpserve.BadRequest("the batch is empty: give a message as JSON on each line")
		case errors.Is(err, io.EOF):
			return results, nil
		case err != nil && !errors.Is(err, errLongLine):
			return nil, httpserve.ReadError(err)
		case len(results) == maxBatch:
			return nil, httpserve.Refuse(http.StatusRequestEntityTooLarge, "too_large", "the batch has more than 1,000 messages")
		case err != nil:
			err = &http.MaxBytesError{Limit: int64(a.opts.HTTP.MaxBodyBytes)}
		}
		var o work.Offer
		if err == nil {
			o, err = a.offer(r, line)
		}
		results = append(results, batchResult{})
		if err != nil {
			results[len(results)-1].Error = describe(err)
			continue
		}
		offers, numbers = append(offers, o), append(numbers, len(results)-1)
	}
}

var errLongLine = errors.New("the line is too long")

// lineReader reads the lines of a batch. It skips empty lines. Its buffer can hold the longest line.
type lineReader struct {
	in   *bufio.Reader
	most int // bytes of a line
}

// newLineReader returns a reader of lines of up to most bytes. size is the length of the body, or -1 if it is unknown.
func newLineReader(body io.Reader, size int64, most int) lineReader {
	longest := int64(most + len("\r\n"))
	if size >= 0 {
		longest = min(longest, size+1)
	}
	return lineReader{bufio.NewReaderSize(body, int(longest)), most}
}

// buffered reports whether a complete line has been received, so that next does not block.
func (l lineReader) buffered() bool {
	come, _ := l.in.Peek(l.in.Buffered())
	return bytes.IndexByte(come, '\n') >= 0
}

// next returns a line, which is valid until the next call. It skips a line that is longer than most and returns errLongLine for it. At the end it
// returns io.EOF.
func (l lineReader) next() ([]byte, error) {
	for {
		line, long, err := l.in.ReadLine()
		for more := long; more && err == nil; {
			_, more, err = l.in.ReadLine()
		}
		switch line = bytes.TrimSpace(line); {
		case err != nil && (!long || !errors.Is(err, io.EOF)): // the end of the body ends a long line, too
			return nil, err
		case long || len(line) > l.most:
			return nil, errLongLine
		case len(line) > 0:
			return line, nil
		}
	}
}
