package console

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/page"
	"github.com/jetpull/jetpull/console/internal/view"
)

const (
	keyLog    = "log."
	keyValues = "values."
	// restoreTime is how long the console tries to read what an earlier process has kept, and keepTime bounds one write.
	restoreTime = time.Minute
	keepTime    = 5 * time.Second
	// keepInterval is the time between two writes of the values of charts.
	keepInterval = 5 * time.Minute
	// maxKept bounds the values of a source, in bytes. A message of a server has a megabyte, unless it is configured otherwise.
	maxKept = 900_000
)

// outlive has the log of actions, the operations and the values of charts outlive the process, where open opens what keeps them. It
// returns when what earlier processes have kept is read, or cannot be.
func (c *Console) outlive(ctx context.Context, runner *operation.Runner, open func(context.Context) (operation.Keep, error)) {
	if open == nil {
		return
	}
	defer runner.Hold(false)
	var keep operation.Keep
	trying, cancel := context.WithTimeout(ctx, restoreTime)
	defer cancel()
	for {
		var err error
		if keep, err = open(trying); err == nil {
			err = c.restore(trying, runner, keep)
		}
		if err == nil {
			break
		}
		select {
		case <-time.After(time.Second):
		case <-trying.Done():
			c.log.Warn("console: log, operations, marks and charts are in memory alone, and end with the process", "bucket", c.cfg.State, "error", err)
			return
		}
	}
	c.sampler.Go(func(ctx context.Context) { c.keepValues(ctx, keep) })
}

// restore reads what earlier processes have kept.
func (c *Console) restore(ctx context.Context, runner *operation.Runner, keep operation.Keep) error {
	kept, err := keep.Read(ctx, keyLog+">")
	if err != nil {
		return err
	}
	values, err := keep.Read(ctx, keyValues+">")
	if err != nil {
		return err
	}
	marks, err := keep.Read(ctx, page.MarkKeys+">")
	if err != nil {
		return err
	}
	c.marks.Restore(marks, keep.Put)
	if err := runner.Restore(ctx, keep); err != nil {
		return err
	}
	var entries []view.Entry
	for _, key := range slices.Sorted(maps.Keys(kept)) {
		var e view.Entry
		if json.Unmarshal(kept[key].Data, &e) == nil {
			entries = append(entries, e)
		}
	}
	for name, h := range c.sampler.Histories() {
		if one, ok := values[keyValues+name]; ok {
			if err := h.Import(one.Data); err != nil {
				c.log.Warn("console: the values of charts cannot be read", "source", name, "error", err)
			}
		}
	}
	c.actions.restore(entries, func(e view.Entry) {
		ctx, cancel := context.WithTimeout(context.Background(), keepTime)
		defer cancel()
		data, err := json.Marshal(e)
		if err == nil {
			// The keys are in the order of time.
			err = keep.Put(ctx, keyLog+fmt.Sprintf("%020d", e.Time.UnixNano())+"-"+rand.Text(), data)
		}
		c.warn("action", e.Action, err)
	})
	return nil
}

// warn logs that something is not kept.
func (c *Console) warn(what, name string, err error) {
	if err != nil {
		c.log.Warn("console: something is not kept, and is gone after a restart", "kind", what, "name", name, "error", err)
	}
}

// keepValues writes the values of charts from time to time, and at the end.
func (c *Console) keepValues(ctx context.Context, keep operation.Keep) {
	ticker := time.NewTicker(keepInterval)
	defer ticker.Stop()
	for ended := false; !ended; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			ended = true
		}
		for name, h := range c.sampler.Histories() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
			data, err := h.Export(maxKept)
			if err == nil {
				err = keep.Put(ctx, keyValues+name, data)
			}
			cancel()
			c.warn("values of charts", name, err)
		}
	}
}
