package work

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/webhook"
)

// The store's clock is set while 30 retries wait. None is early or late.
func TestStoresClockIsSetWhileRetriesWait(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, 10 * time.Minute} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const jobs = 30
				d := dispatch(t, jobs)
				defer d.stop()
				d.receiver.fail = errors.New("500")
				d.begin()
				require.Len(t, d.receiver.called(), jobs)
				d.receiver.mu.Lock()
				d.receiver.fail = nil
				d.receiver.mu.Unlock()
				d.Index.Clock.Set(time.Now().Add(step), time.Now())
				time.Sleep(4 * time.Second)
				synctest.Wait()
				require.Len(t, d.receiver.called(), jobs)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Len(t, d.receiver.called(), 2*jobs)
				for seq := uint64(1); seq <= jobs; seq++ {
					require.Equal(t, domain.Delivered, d.status(seq))
				}
			})
		})
	}
}

// The clock of the process is an hour behind, or ahead. The times of records, pauses and waits are by the store's.
func TestTimesAreTheStores(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := dispatch(t, 2)
				defer d.stop()
				d.Index.Clock.Set(time.Now().Add(ahead), time.Now())
				later := d.Now().Add(time.Minute).Truncate(time.Second)
				d.receiver.answer = &webhook.Answer{Code: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {later.Format(http.TimeFormat)}}}
				d.receiver.fail = errors.New("503")
				d.begin()
				require.Equal(t, d.Now(), d.job(1).ChangedAt)
				require.Equal(t, later, d.job(1).Due)

				d.receiver.mu.Lock()
				d.receiver.answer = nil
				d.receiver.mu.Unlock()
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, 2, d.job(1).Retries)
				k := d.store.consumer
				require.Equal(t, d.job(1).ChangedAt, d.Dispatch.State(k).FailingSince)
				k, err := d.Dispatch.SetPause(t.Context(), k.Channel, k.ID, 0, domain.PausedByOperator)
				require.NoError(t, err)
				require.Equal(t, d.Now(), k.Pause.At)

				_, err = d.Broadcasts.Schedule(t.Context(), domain.Message{}, d.Now().Add(-time.Second))
				require.ErrorIs(t, err, domain.ErrScheduleTooSoon)
				_, err = d.Broadcasts.Schedule(t.Context(), domain.Message{}, d.Now().Add(time.Second))
				require.ErrorIs(t, err, domain.ErrInvalid, "it is not too soon, and has no payload")
			})
		})
	}
}
