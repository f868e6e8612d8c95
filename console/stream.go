package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/jetpull/jetpull/console/internal/page"
	"github.com/jetpull/jetpull/console/internal/view"
)

const (
	// leastRender is the least time between two renders of a page, and mostRender the longest that an open page goes without one: then it
	// is seen that a source does not answer.
	leastRender = 150 * time.Millisecond
	mostRender  = time.Second
	// sendTimeout bounds one write to a browser.
	sendTimeout = 10 * time.Second
)

// renders are the open pages. All that show the same share one render.
type renders struct {
	mu  sync.Mutex
	all map[string]*render
}

// render is the live part of a page at a time.
type render struct {
	pages int // the open pages; guarded by renders.mu

	mu    sync.Mutex
	at    time.Time
	html  []byte
	asked []byte
	err   error
}

// join finds the render of a page that is opened. The returned function is called when it is closed.
func (r *renders) join(key string) (one *render, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]*render{}
	}
	one = r.all[key]
	if one == nil {
		one = &render{}
		r.all[key] = one
	}
	one.pages++
	return one, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if one.pages--; one.pages == 0 {
			delete(r.all, key)
		}
	}
}

// update renders the page unless another has done so in the last leastRender.
func (r *render) update(ctx context.Context, l *view.Layout, build page.Func, req page.Request) (html, asked []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.Now.Sub(r.at) < leastRender {
		return r.html, r.asked, r.err
	}
	r.at = req.Now
	p, err := build(ctx, req)
	if r.err = err; err != nil {
		return nil, nil, err
	}
	l.Page, l.Streaming = p, true
	times := map[string]string{}
	for _, part := range p.Parts {
		if s := part.Source; s.Name != "" && !s.Asked.IsZero() && !s.Stale {
			times[s.Name] = s.Asked.UTC().Format("2006-01-02T15:04:05.000Z")
		}
	}
	var b bytes.Buffer
	if r.err = view.RenderLive(&b, l); r.err != nil {
		return nil, nil, r.err
	}
	r.html = b.Bytes()
	r.asked, r.err = json.Marshal(times)
	return r.html, r.asked, r.err
}

// stream keeps an open page current: it sends the live part of the page whenever that has changed. The browser ends the stream
// while its tab is hidden.
func (c *Console) stream(w http.ResponseWriter, r *http.Request, u user, build page.Func) {
	role := "admin:"
	if u.role != Admin {
		role = "reader:"
	}
	one, leave := c.renders.join(role + r.URL.RequestURI())
	defer leave()
	unwatch := c.sampler.Watch()
	defer unwatch()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	var sent []byte
	begun := false
	for {
		changed := c.sampler.Changed()
		now := time.Now()
		if again, ok := c.sessions.user(r); !ok || again.role != u.role {
			_ = send(out, w, event("reload", nil))
			return
		}
		l := c.layout(r, u)
		html, asked, err := one.update(r.Context(), l, build, page.Request{Query: r.URL.Query(), Now: now})
		var message []byte
		problem, isProblem := errors.AsType[*page.Problem](err)
		switch {
		case isProblem && problem.Status == http.StatusNotFound:
			// The page of an object that is gone becomes the page that states this.
			_ = send(out, w, event("reload", nil))
			return
		case err != nil && r.Context().Err() == nil:
			c.log.Warn("console: page", "path", l.Path, "error", err)
		case !bytes.Equal(html, sent) || !begun:
			begun, sent = true, html
			message = append(event("", html), event("asked", asked)...)
		default:
			message = event("asked", asked)
		}
		if err := send(out, w, message); err != nil {
			return
		}
		if !await(r.Context(), changed) {
			return
		}
	}
}

// await waits for the next sample. It is false when the page is closed.
func await(ctx context.Context, changed <-chan struct{}) bool {
	least, most := time.NewTimer(leastRender), time.NewTimer(mostRender)
	defer least.Stop()
	defer most.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-least.C:
	}
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-most.C:
	}
	return true
}

// event is a message of the stream.
func event(name string, data []byte) []byte {
	var b bytes.Buffer
	if name != "" {
		fmt.Fprintf(&b, "event: %s\n", name)
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		b.WriteString("data: " + strings.ReplaceAll(line, "\r", "") + "\n")
	}
	b.WriteByte('\n')
	return b.Bytes()
}

func send(out *http.ResponseController, w http.ResponseWriter, message []byte) error {
	_ = out.SetWriteDeadline(time.Now().Add(sendTimeout)) // a writer without deadlines has none to set
	if _, err := w.Write(message); err != nil {
		return err
	}
	return out.Flush()
}
