package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/jetpull/jetpull/console/internal/view"
)

// zipped reports whether an answer is compressed with gzip, and states so in its header. A weight of 0 refuses a coding (RFC 9110, section 12.5.3).
func zipped(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Add("Vary", "Accept-Encoding")
	for coding := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
		q, err := strconv.ParseFloat(strings.TrimPrefix(strings.ToLower(weight), "q="), 64)
		if strings.EqualFold(name, "gzip") && (weight == "" || err == nil && q > 0) {
			w.Header().Set("Content-Encoding", "gzip")
			return true
		}
	}
	return false
}

func packed(data []byte) []byte {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	_, _ = zip.Write(data)
	_ = zip.Close() // a buffer takes all that is written
	return b.Bytes()
}

type asset struct {
	data, packed []byte
	kind         string
}

// assets reads the static files. Version changes with any of them, so that browsers may keep them for ever.
func assets() (files map[string]asset, version string) {
	files = map[string]asset{}
	sum := sha256.New()
	_ = fs.WalkDir(view.Static, ".", func(name string, d fs.DirEntry, _ error) error { // files in the binary can be read
		if d.IsDir() {
			return nil
		}
		data, _ := view.Static.ReadFile(name)
		_, _ = sum.Write(data)
		kind := map[string]string{".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}[path.Ext(name)]
		files[path.Base(name)] = asset{data, packed(data), kind + "; charset=utf-8"}
		return nil
	})
	return files, hex.EncodeToString(sum.Sum(nil)[:6])
}

func (c *Console) serveStatic(w http.ResponseWriter, r *http.Request, name string) {
	file, ok := c.static[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.URL.RawQuery == c.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Header().Set("Content-Type", file.kind)
	if zipped(w, r) {
		_, _ = w.Write(file.packed)
		return
	}
	_, _ = w.Write(file.data)
}

// download sends data that may be anything, such as a payload.
func download(w http.ResponseWriter, d *view.Download) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": d.Name}))
	_, _ = w.Write(d.Data) // the client may be gone
}
