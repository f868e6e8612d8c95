package httpapi

import (
	"net/http"
	"slices"
)

var errNoBackup = &httpError{http.StatusNotFound, "Request resource not found: this broker has no server of its own; back up the streams with the nats command"}

// listBackup names the streams to copy, in their order.
func (a *API) listBackup(w http.ResponseWriter, _ *http.Request) error {
	if a.opts.Backup == nil {
		return errNoBackup
	}
	writeJSON(w, map[string][]string{"Streams": a.opts.Backup.Streams})
	return nil
}

// copyStream sends the copy of a stream. One that breaks off has no end mark.
func (a *API) copyStream(w http.ResponseWriter, r *http.Request) error {
	stream := r.PathValue("stream")
	if a.opts.Backup == nil || !slices.Contains(a.opts.Backup.Streams, stream) {
		return errNoBackup
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	if err := a.opts.Backup.Copy(r.Context(), stream, w); err != nil {
		a.log.Warn("backup broke off", "stream", stream, "error", err)
	}
	return nil
}
