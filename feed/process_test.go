package feed

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// textError is an error whose methods need what it points to, as most have.
type textError struct{ text string }

func (e *textError) Error() string { return e.text }

// TestTypedNilErrors: a handler that returns a nil pointer as its error fails an attempt, and ends nothing else.
func TestTypedNilErrors(t *testing.T) {
	t.Parallel()
	var none *textError
	one := ProcessorFunc(func(context.Context, Item) (Response, error) { return Response{Done: true}, none })
	for name, p := range map[string]Processor{
		"one": one,
		"batch": batcher{f: func(items []Item) ([]Response, []error) {
			errs := make([]error, len(items))
			errs[0] = none
			return make([]Response, len(items)), errs
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, backends[0].fresh(t))
			create(t, s, Partition{ID: "p"}, Item{ID: "a"})
			w := watch(t, s, p, MaxRetries(0))
			awaitPartition(t, s, "p", Failed)
			require.NoError(t, w.stop(t))
			it, err := s.Item(t.Context(), "p", "a")
			require.NoError(t, err)
			require.Contains(t, it.Errors[0], "panic")
		})
	}
}
