package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/console/internal/page"
	"github.com/jetpull/jetpull/console/internal/view"
)

var errReadOnly = &page.Problem{
	Status: http.StatusForbidden, Text: "This is a read-only session. Nothing was changed.", Fix: "Sign out, and sign in with the admin token.",
}

func gone(action string) error {
	return &page.Problem{
		Status: http.StatusConflict, Text: "The action " + strconv.Quote(action) + " is not possible now: its object has changed meanwhile, or its " +
			"source does not answer. Nothing was changed.",
		Fix: "Look at the page again.",
	}
}

// act runs the action that the form's field "do" names. It builds the page again for this, so that an action runs only if the page offers it now.
func (c *Console) act(w http.ResponseWriter, r *http.Request, l *view.Layout, u user, build page.Func) error {
	const maxForm = 1 << 20
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return &page.Problem{
			Status: http.StatusBadRequest, Text: "The form cannot be read. Nothing was changed", Err: err,
			Fix: "Open the page again, and send at most 1 MiB.",
		}
	}
	if l.ReadOnly {
		return errReadOnly
	}
	p, err := c.build(build, r, u, l.Now)
	if err != nil {
		return err
	}
	name, word := r.PostForm.Get("do"), r.PostForm.Get("word")
	action := p.Action(name)
	switch {
	case action == nil:
		return gone(name)
	case action.Preview != nil && r.PostForm.Has("count"):
		l.Page, l.Confirm, l.Preview = p, action.Filled(r.PostForm), action.Preview(r.Context(), r.PostForm)
		c.write(w, r, http.StatusOK, "layout", l)
		return nil
	case word != action.Word && action.Word != "":
		return &page.Problem{
			Status: http.StatusBadRequest, Text: "Nothing was changed: the word to confirm this is " + strconv.Quote(action.Word) + ", not " +
				strconv.Quote(word) + ".", Fix: "Go back, and type it.",
		}
	}
	// An action is completed even if the browser closes the connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actionTimeout)
	defer cancel()
	outcome, err := action.Do(ctx, r.PostForm)
	entry := view.Entry{
		Time: time.Now(), Who: u.name + " from " + u.address, Action: action.Label, Target: action.Target, Count: outcome.Count,
		Outcome: outcome.Text,
	}
	if err != nil {
		entry.Failed, entry.Outcome = true, err.Error()
	}
	c.sampler.Refresh()
	key := c.record(ctx, entry)
	c.log.LogAttrs(ctx, slog.LevelInfo, "console: action", slog.String("who", entry.Who), slog.String("action", entry.Action),
		slog.String("target", entry.Target), slog.Int("count", entry.Count), slog.String("outcome", entry.Outcome))
	if err != nil {
		return err
	}
	then := cmp.Or(outcome.Then, l.Here())
	http.SetCookie(w, didCookie(r, then, key, outcomeTime))
	redirect(w, then)
	return nil
}

// record adds an entry to the log of actions, and returns its key.
func (c *Console) record(ctx context.Context, e view.Entry) (key string) {
	key = fmt.Sprintf("%020d-%s", e.Time.UnixNano(), rand.Text())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
	defer cancel()
	if err := c.actions.Set(ctx, key, e); err != nil {
		c.actions.Hold(key, e)
		c.warn("action", e.Action, err)
	}
	return key
}

// entries returns the log of actions, newest first.
func (c *Console) entries() []view.Entry {
	return slices.SortedFunc(maps.Values(c.actions.All()), func(a, b view.Entry) int { return b.Time.Compare(a.Time) })
}

// outcomeTime is how long the outcome of an action is kept for the next page, in seconds.
const outcomeTime = 60

// didCookie returns the cookie that names the action whose outcome a page shows. Only the page with that address shows it, and no other tab. The page
// deletes the cookie, so that neither Back nor a reload shows the outcome again.
func didCookie(r *http.Request, address, key string, seconds int) *http.Cookie {
	sum := sha256.Sum256([]byte(address))
	return cookie(r, "jetpull-console-did-"+hex.EncodeToString(sum[:8]), key, "", seconds)
}

// actionTimeout limits an action that changes objects one by one in a request. Longer actions are operations.
const actionTimeout = 30 * time.Second
