package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/jetpull/jetpull/internal/progress"
)

// WriteJSON writes one value on one line, with nothing that a terminal obeys.
func WriteJSON(out io.Writer, v any) error {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(out, progress.Escape(line.String()))
	return err
}

// Tell writes to stderr for whoever watches, with nothing that a terminal obeys. An error of that has no reader.
func Tell(errOut io.Writer, format string, args ...any) {
	_, _ = io.WriteString(errOut, progress.Escape(fmt.Sprintf(format, args...)))
}
