package run

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

func TestJournal(t *testing.T) {
	var out bytes.Buffer
	w := &Run{errOut: &out}
	w.journal.Warn = w.warn
	log := slog.New(&w.journal)
	log.Warn("jetpull: whether it is a loop cannot be told", "stream", "S", "error", errors.New("no permission"))
	log.Info("jetpull: consuming")
	w.problem(&jetpull.StatusError{Code: 409, Description: "Server Shutdown"})
	w.problem(errors.New("no permission"))
	w.problem(errors.New("jetpull: stream sequence 3: exit status 1"))
	require.Equal(t, "jetpull: whether it is a loop cannot be told: no permission, stream S\n"+
		"jetpull: stream sequence 3: exit status 1\n", out.String(), "a status is told by the log, once for all pulls")

	out.Reset()
	w.json = true
	log.Warn("jetpull: pulling is disturbed", "error", errors.New("jetpull: status 503"))
	require.JSONEq(t, `{"problem":"pulling is disturbed: status 503"}`, out.String())
}
