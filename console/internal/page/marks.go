package page

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/view"
)

// Marks record up to where somebody has looked at the failures of an object. They do not cover later failures. Marks is safe for concurrent use.
type Marks struct{ *operation.Store[look] }

// look is the last mark of an object.
type look struct {
	Object string    `json:"object"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	// Sequence is the last message of a stream that was created at Created, or the number of the relay's last failure. If Timed, it is the time of
	// the broker's last failure, in nanoseconds.
	Sequence uint64    `json:"sequence,omitempty"`
	Timed    bool      `json:"timed,omitempty"`
	Created  time.Time `json:"created,omitzero"`
}

// NewMarks returns empty Marks. Of two marks of an object, the later one counts.
func NewMarks() *Marks {
	return &Marks{operation.NewStore("seen.", 0, func(own, kept look) bool { return kept.At.Before(own.At) })}
}

func markKey(object string) string { return base64.RawURLEncoding.EncodeToString([]byte(object)) }

func (m *Marks) of(object string) look {
	one, _ := m.Get(markKey(object))
	return one
}

// words describes the mark of an object that has one.
func (one look) words() string {
	return inSentence("looked", map[string]any{"Mark": one, "Time": time.Unix(0, int64(one.Sequence))})
}

// newest returns the failures of an object, newest first, as its system lists them.
type newest func() (found []failure, next string, err error)

// last returns the position of the newest failure. known is false if the system did not report it.
func (n newest) last() (seq uint64, timed, known bool) {
	found, _, err := n()
	if err != nil || len(found) == 0 {
		return 0, false, false
	}
	if found[0].system == relayName {
		seq, err = strconv.ParseUint(found[0].id, 10, 64)
		return seq, false, err == nil
	}
	return uint64(found[0].at.UnixNano()), true, true
}

// covers reports whether somebody has looked at all failures of an object. If there is a mark, it asks the system. known is false if that fails.
func (m *Marks) covers(object string, newest newest) (all, known bool) {
	mark := m.of(object)
	if mark.By == "" {
		return false, true
	}
	seq, timed, known := newest.last()
	return known && seq <= mark.Sequence && timed == mark.Timed, known
}

// show adds the mark of an object to a part of its page, and the action that marks its failures.
func (m *Marks) show(part *view.Part, object string, newest newest, r Request) {
	if mark := m.of(object); mark.By != "" {
		part.Lines = append(part.Lines, mark.words())
	}
	if seq, timed, known := newest.last(); known {
		part.Actions = append(part.Actions, m.action(look{Object: object, Sequence: seq, Timed: timed}, r))
	}
}

// action returns the action that marks the failures of an object. The form has the sequence that the user saw, so that the mark does not cover later
// failures. The current page, which may have more, limits it. A user without a personal name may enter one.
func (m *Marks) action(present look, r Request) view.Action {
	fields := []view.Field{
		{Name: "shown", Value: strconv.FormatUint(present.Sequence, 10), Hidden: true}, {Name: "object", Value: present.Object, Hidden: true},
	}
	unnamed := r.User == "admin" || r.User == "anybody"
	if unnamed {
		fields = append(fields, view.Field{Name: "by", Label: "Your name"})
	}
	return view.Action{
		Name: "seen", Label: "Mark as looked at", Target: present.Object, Fields: fields,
		Do: func(ctx context.Context, form url.Values) (view.Outcome, error) {
			shown := present
			seq, err := strconv.ParseUint(form.Get("shown"), 10, 64)
			if err != nil {
				return view.Outcome{}, invalid("Open the page again.", "%q is no sequence that a page has shown. Nothing was marked.", form.Get("shown"))
			}
			if o := form.Get("object"); o != "" && o != present.Object { // the page now shows another first stream
				return view.Outcome{}, impossible("Open the page again.", "This page is that of %s now. Nothing was marked.", present.Object)
			}
			shown.Sequence, shown.By, shown.At = min(seq, present.Sequence), r.User, r.Now
			if unnamed {
				shown.By = cmp.Or(strings.TrimSpace(form.Get("by")), shown.By)
			}
			if len(shown.By) > 100 {
				return view.Outcome{}, invalid("Give a name of at most 100 bytes.", "The name has %d bytes. Nothing was marked.", len(shown.By))
			}
			if err := m.Set(ctx, markKey(shown.Object), shown); err != nil {
				return view.Outcome{}, unavailable(err, "Try again.", "The mark was not stored")
			}
			return done("Marked as looked at by " + shown.By + ". Failures that come later are not."), nil
		},
	}
}
