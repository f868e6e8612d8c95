package httpapi

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/relay/internal/machine"
)

const (
	// maxBatch is the most messages in a batch, and maxBatchBody the most bytes.
	maxBatch     = 1000
	maxBatchBody = 64 << 20
	// maxBegun bounds the bytes of a batch's messages that wait for their verdict.
	maxBegun = 4 << 20
)

// batchResult is one line of the answer to a batch.
type batchResult struct {
	Source string           `json:"source_id,omitempty"`
	ID     string           `json:"message_id,omitempty"`
	Status machine.Status   `json:"status,omitempty"`
	Error  *httpserve.Error `json:"error,omitempty"`
}

// postBatch stores up to 1,000 messages, in their order, each when its line has come. A batch that is refused as a whole may
// have begun: what it has stored is known when the batch is sent again.
func (a *API) postBatch(w http.ResponseWriter, r *http.Request) error {
	results, err := a.storeLines(r, newLineReader(http.MaxBytesReader(w, r.Body, maxBatchBody), r.ContentLength, a.opts.MaxBody))
	if err != nil {
		return err
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

// begun is a message of a batch that waits for its verdict.
type begun struct {
	line, size int
	verdict    submitted
}

// storeLines stores the messages of a batch. It reads on while verdicts come, so that what a message takes is given up at its
// verdict and not at the end of the batch, which a client may never send.
func (a *API) storeLines(r *http.Request, lines lineReader) ([]batchResult, error) {
	results := make([]batchResult, maxBatch)
	waiting, decided := make(chan begun, maxBatch), make(chan int, maxBatch)
	var verdicts sync.WaitGroup
	verdicts.Go(func() {
		for b := range waiting {
			_, answer, err := b.verdict()
			results[b.line] = batchResult{Source: answer.Source, ID: answer.ID, Status: answer.Status}
			if err != nil {
				results[b.line] = batchResult{Error: describe(err)}
			}
			decided <- b.size
		}
	})
	n, err := a.beginLines(r, lines, results, waiting, decided)
	close(waiting)
	verdicts.Wait()
	return results[:n], err
}

// beginLines begins to store each line, and returns how many there are.
func (a *API) beginLines(r *http.Request, lines lineReader, results []batchResult, waiting chan<- begun, decided <-chan int) (n int, err error) {
	for size := 0; ; n++ {
		line, err := lines.next()
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return n, httpserve.BadRequest("the batch is empty: give a message as JSON on each line")
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil && !errors.Is(err, errLongLine):
			return n, httpserve.ReadError(err)
		case n == maxBatch:
			return n, httpserve.Refuse(http.StatusRequestEntityTooLarge, "too_large", "the batch has more than 1,000 messages")
		}
		var m messageBody
		if err == nil {
			m, err = parseMessage(line)
		} else {
			err = &http.MaxBytesError{Limit: int64(a.opts.MaxBody)}
		}
		b := begun{line: n, size: len(line)}
		if err == nil {
			for size > 0 && size+b.size > maxBegun {
				size -= <-decided
			}
			b.verdict, err = a.submit(r, m)
		}
		if err != nil {
			results[n] = batchResult{Error: describe(err)}
			continue
		}
		size += b.size
		waiting <- b
	}
}

var errLongLine = errors.New("the line is too long")

// lineReader reads the lines of a batch. Empty ones do not count. Its buffer has room for the longest line.
type lineReader struct {
	in   *bufio.Reader
	most int // bytes of a line
}

// newLineReader reads lines of up to most bytes from a body of a size; -1: the size is not known.
func newLineReader(body io.Reader, size int64, most int) lineReader {
	room := int64(most + len("\r\n"))
	if size >= 0 {
		room = min(room, size+1)
	}
	return lineReader{bufio.NewReaderSize(body, int(room)), most}
}

// next returns a line, which is good until the next call; errLongLine: it was longer than most, and is skipped; io.EOF: there is
// none.
func (l lineReader) next() ([]byte, error) {
	for {
		line, err := l.in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.in.ReadSlice('\n')
		}
		switch line = bytes.TrimSpace(line); {
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case long || len(line) > l.most:
			return nil, errLongLine
		case len(line) > 0:
			return line, nil
		case err != nil:
			return nil, err
		}
	}
}
