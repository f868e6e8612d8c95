package broker

import (
	"context"
	"log/slog"
	"time"
)

// restartPause is between two restarts of the server.
const restartPause = 5 * time.Second

// mend starts the embedded server again, on the same store, if it takes nothing any more because the disk had no room, which
// there is now. Everything that was answered is in the store, and what was refused is not.
func (n *Node) mend(ctx context.Context) {
	if !n.store.Writers.Stuck() || time.Since(n.restarted) < restartPause {
		return
	}
	n.restarted = time.Now()
	n.log.Warn("the disk has room again: the embedded server is started again, because it keeps a write error for good")
	if err := n.embedded.Restart(ctx); err != nil {
		n.log.Error("the embedded server could not be started again, trying again", "error", err)
		return
	}
	n.store.Writers.Restarted()
	n.log.Info("the embedded server runs again")
}

// overheard passes a log on, and each text of the embedded server to said.
type overheard struct {
	slog.Handler
	said func(text string)
}

// Handle implements slog.Handler.
func (h overheard) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "text" {
			h.said(a.Value.String())
		}
		return true
	})
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h overheard) WithAttrs(attrs []slog.Attr) slog.Handler {
	return overheard{h.Handler.WithAttrs(attrs), h.said}
}

// Enabled implements slog.Handler: what is not logged is heard all the same.
func (h overheard) Enabled(context.Context, slog.Level) bool { return true }

// heard is called with each line of the embedded server.
func (n *Node) heard(text string) {
	if s := n.listens.Load(); s != nil {
		s.Writers.ServerSaid(text)
	}
}
