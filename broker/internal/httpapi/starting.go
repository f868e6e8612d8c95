package httpapi

import "net/http"

// Starting answers for a broker that has not started yet: it is alive, and 503 says of all else why it cannot serve. It looks at no
// token, so that reason is for everybody.
func Starting(reason func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/healthz" {
			writeJSON(w, map[string]string{"status": "ok"})
			return
		}
		textFailure(http.StatusServiceUnavailable, reason()).Write(w)
	})
}
