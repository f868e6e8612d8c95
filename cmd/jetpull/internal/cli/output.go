package cli

import (
	"encoding/json"
	"fmt"
	"io"
)

// WriteJSON writes one value on one line.
func WriteJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Tell writes to stderr for whoever watches. Where nobody can be told, there is
// nobody to Tell that either.
func Tell(errOut io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(errOut, format, args...)
}
