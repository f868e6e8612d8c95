package console

import (
	"context"
	"sync"
	"time"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/internal/watch"
)

const (
	keyValues = "values." // prefix of the keys of the charts' values
	// restoreTime is how long operations and alerts wait for the data of earlier processes. It also limits one attempt to read them. keepTime limits
	// one write. After restoreTime, laterPause is the interval between two attempts.
	restoreTime = time.Minute
	laterPause  = 10 * time.Second
	keepTime    = 5 * time.Second
	// keepInterval is the interval between two writes of the charts' values.
	keepInterval = 5 * time.Minute
	// maxKept is the maximum size of a source's values, in bytes. A server accepts messages of 1 MB, unless it is configured otherwise.
	maxKept = 900_000
)

// outlive keeps the log of actions, the operations, the marks and the values of charts beyond the end of the process, in the store that open returns.
// It retries until it has read the data of earlier processes. It calls ready once: when it has read them, or after restoreTime.
func (c *Console) outlive(ctx context.Context, runner *operation.Runner, open func(context.Context) (operation.Keep, error), ready func()) {
	ready = sync.OnceFunc(ready)
	for pause, begun := time.Second, time.Now(); ; {
		keep, err := c.restore(ctx, runner, open)
		if err == nil {
			ready()
			c.keepValues(ctx, keep)
			return
		}
		if pause != laterPause && time.Since(begun) >= restoreTime {
			c.log.Warn("console: log, operations, marks and charts are in memory alone until the bucket can be read", "bucket", c.cfg.State, "error", err)
			pause = laterPause
			ready()
		}
		if watch.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// restore reads the data that earlier processes have kept.
func (c *Console) restore(ctx context.Context, runner *operation.Runner, open func(context.Context) (operation.Keep, error)) (operation.Keep, error) {
	ctx, cancel := context.WithTimeout(ctx, restoreTime)
	defer cancel()
	keep, err := open(ctx)
	if err != nil {
		return nil, err
	}
	values, err := keep.Read(ctx, keyValues+">")
	if err != nil {
		return nil, err
	}
	for _, one := range []interface {
		Restore(ctx context.Context, keep operation.Keep) error
	}{c.marks, c.actions, runner} {
		if err := one.Restore(ctx, keep); err != nil {
			return nil, err
		}
	}
	for name, h := range c.sampler.Histories {
		if one, ok := values[keyValues+name]; ok {
			if err := h.Import(one.Data); err != nil {
				c.log.Warn("console: the values of charts cannot be read", "source", name, "error", err)
			}
		}
	}
	return keep, nil
}

// warn logs that something was not kept.
func (c *Console) warn(what, name string, err error) {
	c.log.Warn("console: something is not kept, and is gone after a restart", "kind", what, "name", name, "error", err)
}

// keepValues writes the values of charts periodically, and at the end.
func (c *Console) keepValues(ctx context.Context, keep operation.Keep) {
	for ended := false; !ended; {
		ended = watch.Sleep(ctx, keepInterval) != nil
		for name, h := range c.sampler.Histories {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
			data, err := h.Export(maxKept)
			if err == nil {
				_, err = keep.Put(ctx, keyValues+name, data)
			}
			cancel()
			if err != nil {
				c.warn("values of charts", name, err)
			}
		}
	}
}
