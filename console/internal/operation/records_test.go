package operation

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/bulk"
)

// bucketOf is a bucket with some values.
type bucketOf map[string]*jetstream.RawStreamMsg

func (s bucketOf) Read(_ context.Context, keys string) (map[string]*jetstream.RawStreamMsg, error) {
	found := map[string]*jetstream.RawStreamMsg{}
	for key, kept := range s {
		if strings.HasPrefix(key, strings.TrimSuffix(keys, ">")) {
			found[key] = kept
		}
	}
	return found, nil
}
func (bucketOf) Put(context.Context, string, []byte) (uint64, error)            { return 1, nil }
func (bucketOf) Update(context.Context, string, []byte, uint64) (uint64, error) { return 1, nil }

// A record in the bucket has the console continue what whoever can write there could do anyway, and nothing that needs a token of the console.
func TestKeptOperations(t *testing.T) {
	kept := bucketOf{}
	for kind, state := range map[string]bulk.State{
		"requeue dead letters": bulk.Running, "purge dead letters": bulk.Running, "pause consumers": bulk.Running, "pause receivers": bulk.Running,
		"disable broker consumers": bulk.Running, "unknown": bulk.Running, "resume receivers": bulk.Done,
	} {
		data, err := json.Marshal(bulk.Operation{ID: kind, Kind: kind, State: state, Spec: json.RawMessage(`{"What":"it","Select":"key"}`)})
		require.NoError(t, err)
		kept["operation."+strings.ReplaceAll(kind, " ", "_")] = &jetstream.RawStreamMsg{Data: data, Sequence: 1}
	}
	kept["operation.garbage"] = &jetstream.RawStreamMsg{Data: []byte(`{"ID":"garbage","Kind":"garbage","State":"DONE"}`), Sequence: 1}
	r := NewRunner(slog.New(slog.DiscardHandler))
	for kind, continued := range map[string]bool{
		"requeue dead letters": true, "purge dead letters": true, "pause consumers": true, "pause receivers": false, "disable broker consumers": false,
	} {
		r.Add(kind, continued, 1, nil)
	}
	require.NoError(t, r.Restore(t.Context(), kept))
	all, err := r.Operations(t.Context())
	require.NoError(t, err)
	states := map[string]string{}
	for _, o := range all {
		states[o.Kind] = o.State
		if o.State == "interrupted" {
			require.Equal(t, []string{"It was interrupted by a restart: begin it again."}, o.Notes)
		}
	}
	require.Equal(t, map[string]string{
		"requeue dead letters": Running, "purge dead letters": Running, "pause consumers": Running, "pause receivers": "interrupted",
		"disable broker consumers": "interrupted", "unknown": "interrupted", "resume receivers": "done", "garbage": "done",
	}, states)
}

// Operations that have begun without the bucket stay in memory. Those of the bucket may have the same IDs.
func TestOperationsBegunBeforeTheBucketIsRead(t *testing.T) {
	r := NewRunner(slog.New(slog.DiscardHandler))
	r.AddNamed("pause consumers", true, nil)
	o, err := r.BeginNamed(t.Context(), "pause consumers", "ada", "own", Chosen{Names: []string{"a"}}, 0)
	require.NoError(t, err)
	data, err := json.Marshal(bulk.Operation{ID: o.ID, Kind: "pause consumers", State: bulk.Done, Spec: json.RawMessage(`{"What":"kept"}`)})
	require.NoError(t, err)
	require.NoError(t, r.Restore(t.Context(), bucketOf{"operation." + o.ID: {Data: data, Sequence: 1}}))
	all, err := r.Operations(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "own", all[0].What)
}

// An operation whose objects are not known any more ends, and says why.
func TestAnOperationWithoutItsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRunner(slog.New(slog.DiscardHandler))
		r.AddNamed("pause consumers", true, nil)
		data, err := json.Marshal(bulk.Operation{
			ID: "console-1", Number: 1, Next: 1, Kind: "pause consumers", State: bulk.Running, Spec: json.RawMessage(`{"What":"it","Select":"key"}`),
		})
		require.NoError(t, err)
		require.NoError(t, r.Restore(t.Context(), bucketOf{"operation.console-1": {Data: data, Sequence: 1}}))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go r.Run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		all, err := r.Operations(t.Context())
		require.NoError(t, err)
		require.Equal(t, "cancelled", all[0].State)
		require.Equal(t, []string{"It ended early: not found: the objects of this operation are not known any more"}, all[0].Notes)
	})
}
