package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jetpull/jetpull/console/internal/page"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/watch"
)

const (
	// leastRender is the minimum interval between two renders of a page. It is less than settle, so that a render shared with another stream has the
	// sample that woke this stream. mostRender is the maximum interval, so that an open page shows when a source does not answer.
	leastRender = 40 * time.Millisecond
	mostRender  = time.Second
	// settle is how long a stream waits after a sample for the samples of other sources, which are asked at the same times.
	settle = 50 * time.Millisecond
	// quiet is the maximum interval between two messages of a stream. After three times as long, the page considers the console lost.
	quiet = 2 * time.Second
	// sendTimeout limits one write to a browser.
	sendTimeout = 10 * time.Second
)

// renders contains the renders of the open pages. Pages that show the same share one.
type renders struct {
	mu  sync.Mutex
	all map[string]*render
}

// render is the live part of a page at a time.
type render struct {
	pages int // number of open pages; guarded by renders.mu

	mu    sync.Mutex
	at    time.Time
	page  *view.Page // the last one that was built
	shown frame
	err   error
}

// frame is sent to an open page, as messages of its stream. The streams of the same page share it.
type frame struct {
	html  []byte // the live part
	asked []byte // when each source last answered, to the second
}

// join returns the render for an opened page. leave must be called when the page is closed.
func (r *renders) join(key string) (one *render, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
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

// update renders the page, unless another stream has done so within leastRender.
func (r *render) update(l *view.Layout, build func() (*view.Page, error)) (frame, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.Now.Sub(r.at) < leastRender {
		return r.shown, r.err
	}
	r.at = l.Now
	p, err := r.orLast(build())
	if r.err = err; err != nil {
		return frame{}, err
	}
	l.Page, l.Streaming = p, true
	times := map[string]string{}
	for _, part := range p.Parts {
		if s := part.Source; s.Name != "" && !s.Asked.IsZero() && !s.Stale {
			times[s.Name] = s.Asked.UTC().Format("2006-01-02T15:04:05Z")
		}
	}
	html, err := view.Render("live", l)
	asked, _ := json.Marshal(times) // strings can always be encoded
	r.shown, r.err = frame{event("", html), event("asked", asked)}, err
	return r.shown, r.err
}

// orLast returns the page. If a part's source does not answer, it returns the part of the last page, in grey.
func (r *render) orLast(p *view.Page, err error) (*view.Page, error) {
	stale := func(part view.Part, why view.Source) view.Part {
		why.Name, why.Asked, why.Stale = part.Source.Name, part.Source.Asked, true
		part.Source = why
		return part
	}
	problem, ok := errors.AsType[*page.Problem](err)
	switch {
	case err == nil && r.page != nil:
		for i, part := range p.Parts {
			known := slices.IndexFunc(r.page.Parts, func(last view.Part) bool { return last.ID == part.ID && !last.Unknown() })
			if part.Unknown() && part.Source.Error != "" && known >= 0 {
				p.Parts[i] = stale(r.page.Parts[known], part.Source)
			}
		}
	case err != nil && r.page != nil && ok && problem.Err != nil && problem.Status != http.StatusNotFound:
		last := *r.page
		last.Parts = slices.Clone(last.Parts)
		for i, part := range last.Parts {
			last.Parts[i] = stale(part, view.Source{}.Away(problem.Err))
		}
		return &last, nil
	}
	r.page = p
	return p, err
}

// stream keeps an open page current: it sends the live part of the page whenever it has changed. The browser ends the stream while its tab is hidden.
func (c *Console) stream(w http.ResponseWriter, r *http.Request, u user, build page.Func) {
	done, ok := c.sessions.stream(r)
	if !ok {
		w.Header().Set("Retry-After", "60")
		http.Error(w, fmt.Sprintf("Too many pages are open: %d of this session, or %d of this token. Close some.", maxStreams, maxTokenStreams),
			http.StatusTooManyRequests)
		return
	}
	defer done()
	one, leave := c.renders.join(fmt.Sprint(u.role, " ", here(r)))
	defer leave()
	unwatch := c.sampler.Watch()
	defer unwatch()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	var sent frame
	sentAt := time.Time{}
	for {
		sampled := c.sampler.Changed()
		if again, ok := c.sessions.user(r); !ok || again.role != u.role {
			_ = send(out, w, event("reload", nil))
			return
		}
		l := c.layout(r, u)
		next, err := one.update(l, func() (*view.Page, error) { return c.build(build, r, u, l.Now) })
		problem, isProblem := errors.AsType[*page.Problem](err)
		switch {
		case isProblem && problem.Status == http.StatusNotFound:
			// Reload the page of an object that is gone, which then says so.
			_ = send(out, w, event("reload", nil))
			return
		case err != nil && r.Context().Err() == nil:
			c.log.Warn("console: page", "path", r.URL.Path, "error", err)
		case err == nil && (!bytes.Equal(next.html, sent.html) || !bytes.Equal(next.asked, sent.asked) || l.Now.Sub(sentAt) >= quiet):
			messages := [][]byte{next.html, next.asked}
			if bytes.Equal(next.html, sent.html) {
				messages = messages[1:]
			}
			sent, sentAt = next, l.Now
			if send(out, w, messages...) != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(mostRender):
		case <-sampled:
			if watch.Sleep(r.Context(), settle) != nil {
				return
			}
		}
	}
}

// event returns a message of the stream.
func event(name string, data []byte) []byte {
	if name != "" {
		name = "event: " + name + "\n"
	}
	return []byte(name + "data: " + lines.Replace(string(data)) + "\n\n")
}

var lines = strings.NewReplacer("\r", "", "\n", "\ndata: ")

func send(out *http.ResponseController, w http.ResponseWriter, messages ...[]byte) error {
	_ = out.SetWriteDeadline(time.Now().Add(sendTimeout)) // a writer without deadlines returns an error
	for _, message := range messages {
		if _, err := w.Write(message); err != nil {
			return err
		}
	}
	return out.Flush()
}
