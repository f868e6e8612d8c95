package console

import (
	"compress/gzip"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/jetpull/jetpull/console/internal/view"
)

// takesGzip reports whether the client accepts gzip. A weight of 0 refuses a coding (RFC 9110, section 12.5.3).
func takesGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
		q, err := strconv.ParseFloat(strings.TrimPrefix(strings.ToLower(weight), "q="), 64)
		if strings.EqualFold(name, "gzip") && (weight == "" || err == nil && q > 0) {
			return true
		}
	}
	return false
}

// reply responds with a text, compressed if the client accepts that.
func reply(w http.ResponseWriter, r *http.Request, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind+"; charset=utf-8")
	w.Header().Add("Vary", "Accept-Encoding")
	if !takesGzip(r) {
		w.WriteHeader(status)
		_, _ = w.Write(body) // the client may be gone
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	zip := gzip.NewWriter(w)
	_, _ = zip.Write(body)
	_ = zip.Close()
}

// serveStatic responds with a static file. Browsers may keep a file that they request by version.
func serveStatic(w http.ResponseWriter, r *http.Request, name string) {
	data, err := view.Static.ReadFile(name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	if r.URL.RawQuery == view.Version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	kind := map[string]string{".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}[path.Ext(name)]
	reply(w, r, http.StatusOK, kind, data)
}

// download responds with arbitrary data, such as a payload.
func download(w http.ResponseWriter, d *view.Download) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": d.Name}))
	_, _ = w.Write(d.Data) // the client may be gone
}
