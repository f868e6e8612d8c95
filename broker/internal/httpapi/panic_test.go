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
	"github.com/jetpull/jetpull/broker/internal/work"
)

// brittleStore has one pull consumer with any number of jobs in flight, and
// panics over one of them.
type brittleStore struct {
	Directory    // the rest is not called
	work.Records // the rest is not called
	panicsOver   uint64
}

func (brittleStore) Channel(_ context.Context, id string) (domain.Channel, error) {
	return domain.Channel{Stakeholder: domain.Stakeholder{ID: id, Token: "ct"}}, nil
}

func (brittleStore) Consumer(_ context.Context, channel, id string) (domain.Consumer, error) {
	return domain.Consumer{Stakeholder: domain.Stakeholder{ID: id, Token: "kt", Number: 1}, Channel: channel, Type: domain.Pull}, nil
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

// A panic over one job is answered with 500 for that one and does not end the
// process, in a request of its own or with others; the log says where it was.
func TestAPanicIsOfOneJob(t *testing.T) {
	var log bytes.Buffer
	store := brittleStore{panicsOver: 2}
	api := New(work.New(work.Parts{Records: store}), View{Directory: store}, Options{MaxBody: 1 << 20, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	post := func(path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/channel/ch/consumer/k"+path, strings.NewReader(body))
		r.Header.Set("X-Broker-Channel-Token", "ct")
		r.Header.Set("X-Broker-Consumer-Token", "kt")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w
	}
	id := func(seq uint64) string { return domain.JobID{Seq: seq, Consumer: 1}.String() }

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
