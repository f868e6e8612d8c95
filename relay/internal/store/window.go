package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Window says who counts the POSTs to a receiver with a rate limit. Whoever is about to POST writes his name first;
// who finds another's does not know the times of that one's last POSTs, unless it has left them.
type Window struct {
	Owner string `json:"owner"`
	// Left says that the owner has stopped counting, and Posts how long before that its last POSTs ended, the oldest
	// first. Not times: the next owner's clock may be another, and this one's may have been set. A process that does not
	// know this name of it takes the window for full.
	Left     bool    `json:"stopped,omitempty"`
	Posts    []Posts `json:"posts,omitempty"`
	Revision uint64  `json:"-"`
}

// Posts are POSTs that ended together, or nearly so.
type Posts struct {
	Age   time.Duration `json:"age"`
	Count int           `json:"count"`
}

func windowKey(receiver string) string { return "window." + Token(receiver) }

// Window reads who counts. Revision 0: nobody has ever; nobody who is known does where what is stored cannot be read.
func (s *Registry) Window(ctx context.Context, receiver string) (Window, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	entry, err := s.state.Get(ctx, windowKey(receiver))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return Window{}, nil
	case err != nil:
		return Window{}, fmt.Errorf("%w: read the window of %q: %w", ErrUnavailable, receiver, err)
	}
	w := Window{Revision: entry.Revision()}
	if json.Unmarshal(entry.Value(), &w) != nil {
		return Window{Revision: entry.Revision()}, nil
	}
	return w, nil
}

// PutWindow writes who counts in the place of what has the revision. ErrConflict: another was faster.
func (s *Registry) PutWindow(ctx context.Context, receiver string, w Window) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	data, err := json.Marshal(w)
	if err != nil {
		return 0, fmt.Errorf("write the window of %q: %w", receiver, err)
	}
	revision, err := s.state.Update(ctx, windowKey(receiver), data, w.Revision)
	if err != nil {
		return 0, configError("write", windowKey(receiver), err)
	}
	return revision, nil
}
