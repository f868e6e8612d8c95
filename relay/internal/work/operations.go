package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// operationPage is how many messages of an operation are selected at a time.
const operationPage = 2500

// operator redrives, skips and purges failed messages.
type operator struct {
	*core
	Operations *bulk.Runner
}

func newOperator(c *core) operator {
	w := operator{core: c}
	w.Operations = bulk.New(bulk.Config{
		Records: c.store.Operations,
		Kinds: map[string]bulk.Kind{
			store.Redrive: w.operation(w.Redrive),
			store.Skip:    w.operation(func(ctx context.Context, i *store.Item) error { return w.store.Settle(ctx, i, store.Skip, true) }),
			store.Purge:   w.operation(func(ctx context.Context, i *store.Item) error { return w.store.Settle(ctx, i, store.Purge, false) }),
		},
		Process: c.node, Shared: !c.store.Embedded(), Lost: c.cfg.Takeover, Now: c.store.Now, Log: c.log,
	})
	return w
}

// operation returns a kind of operation that calls do for each failed message.
func (w *operator) operation(do func(context.Context, *store.Item) error) bulk.Kind {
	choose := func(_ context.Context, o bulk.Operation, from uint64, limit int) (items []bulk.Item, next uint64, err error) {
		var selection store.Selection
		if err := json.Unmarshal(o.Spec, &selection); err != nil {
			return nil, from, fmt.Errorf("operation %s: %w", o.ID, err)
		}
		found, next := w.store.SelectFailed(selection, from, o.UpTo, limit)
		for i := range found {
			items = append(items, func(ctx context.Context) (bool, error) {
				err := do(ctx, &found[i])
				if errors.Is(err, errNotRedriven) || errors.Is(err, store.ErrConflict) {
					return false, nil
				}
				return err == nil, err
			})
		}
		return items, next, nil
	}
	return bulk.Kind{Known: w.store.LastFailed, Select: choose, Page: operationPage}
}
