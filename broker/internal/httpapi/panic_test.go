package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/journal"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/test/servertest"
)

// brittleStore has any number of jobs in flight, and panics for one of them.
type brittleStore struct {
	work.Records // other methods are not called
	panicsOver   uint64
}

func (s brittleStore) Job(_ context.Context, id domain.JobID) (domain.Job, error) {
	if id.Seq == s.panicsOver {
		panic("a defect of the store")
	}
	return domain.Job{ID: id, Status: domain.Inflight}, nil
}

func (s brittleStore) Refresh(ctx context.Context, id domain.JobID) (domain.Job, error) {
	return s.Job(ctx, id)
}

func (brittleStore) PutJob(_ context.Context, j domain.Job) (domain.Job, error) { return j, nil }

// A panic about one job is answered with 500 for that job, in a request of its own or in a batch. The process goes on, and the
// log has the stack.
func TestAPanicIsOfOneJob(t *testing.T) {
	var log bytes.Buffer
	srv := servertest.RunServer(t)
	journalStore, err := journal.Open(t.Context(), srv.JetStream(t, srv.Connect(t)),
		journal.Config{Name: "broker", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(journalStore.Close)
	_, err = journalStore.Directory.Channels.Save(t.Context(), domain.Channel{Stakeholder: domain.Stakeholder{ID: "ch", Token: "ct"}})
	require.NoError(t, err)
	k, err := journalStore.Directory.Consumers.Save(t.Context(), domain.Consumer{
		Stakeholder: domain.Stakeholder{ID: "k", Token: "kt"}, Channel: "ch",
		Type: domain.Pull,
	})
	require.NoError(t, err)
	store := brittleStore{panicsOver: 2}
	api := New(work.New(work.Parts{Records: store, Index: journalStore.Index}), journalStore.Directory,
		Options{HTTP: service.HTTP{MaxBodyBytes: 1 << 20}, Stopping: t.Context(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	post := func(path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/channel/ch/consumer/k"+path, strings.NewReader(body))
		r.Header.Set("X-Broker-Channel-Token", "ct")
		r.Header.Set("X-Broker-Consumer-Token", "kt")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w
	}
	id := func(seq uint64) string { return domain.JobID{Seq: seq, Consumer: k.Number}.String() }

	alone := post("/job/"+id(2), `{"NextState":"DELIVERED"}`)
	require.Equal(t, http.StatusInternalServerError, alone.Code)
	require.Contains(t, log.String(), "a defect of the store")
	require.Contains(t, log.String(), "brittleStore.Job", "the stack")
	log.Reset()

	var items []string
	for seq := uint64(1); seq <= 4; seq++ {
		items = append(items, fmt.Sprintf(`{"ID":%q,"NextState":"DELIVERED"}`, id(seq)))
	}
	several := post("/jobs", `{"Transitions":[`+strings.Join(items, ",")+`]}`)
	require.Equal(t, http.StatusOK, several.Code, several.Body)
	var answer struct{ Result []batchResult }
	require.NoError(t, json.Unmarshal(several.Body.Bytes(), &answer))
	require.Equal(t, []batchResult{
		{ID: id(1), Status: http.StatusAccepted},
		{ID: id(2), Status: alone.Code, Error: alone.Body.String()},
		{ID: id(3), Status: http.StatusAccepted},
		{ID: id(4), Status: http.StatusAccepted},
	}, answer.Result)
	require.Contains(t, log.String(), id(2))
	require.Contains(t, log.String(), "a defect of the store")
	require.Contains(t, log.String(), "brittleStore.Job", "the stack")
}
