package operation

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Each object is tried once, in the order of the names, and the names are forgotten when the operation has ended.
func TestNamedOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRunner(slog.New(slog.DiscardHandler))
		var tried []string
		r.AddNamed("pause", true, func(_ context.Context, name string, of Chosen) error {
			tried = append(tried, name+" "+of.Form.Get("for"))
			if name == "b" {
				return errors.New("it is locked")
			}
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Run(ctx)
		}()
		defer func() {
			stop()
			<-ended
		}()
		synctest.Wait()
		begun, err := r.BeginNamed(ctx, "pause", "ada", "consumers", Chosen{Names: []string{"a", "b", "c"}, Form: url.Values{"for": {"1h"}}}, 0)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		all, err := r.Operations(ctx)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, []any{begun.ID, "done", "ada", "consumers", 2, 1}, []any{
			all[0].ID, all[0].State, all[0].By, all[0].What, all[0].Done, all[0].Skipped,
		})
		require.Contains(t, all[0].Notes, "b: it is locked")
		require.Equal(t, []string{"a 1h", "b 1h", "c 1h"}, tried)
		require.Empty(t, r.chosen.All())
	})
}

// The objects of an operation survive a restart. Those of an earlier build have no time.
func TestChosenObjectsAreKept(t *testing.T) {
	kept := Chosen{Names: []string{"a"}, Form: url.Values{"for": {"1h"}}, Created: time.Unix(100, 0).UTC()}
	data, err := json.Marshal(kept)
	require.NoError(t, err)
	var again, earlier Chosen
	require.NoError(t, json.Unmarshal(data, &again))
	require.Equal(t, kept, again)
	require.NoError(t, json.Unmarshal([]byte(`{"Names":["a"],"Form":null}`), &earlier))
	require.Equal(t, Chosen{Names: []string{"a"}}, earlier)
}
