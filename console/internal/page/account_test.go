package page

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
)

// oneAccount is an account.
type oneAccount struct {
	mu    sync.Mutex
	info  AccountInfo
	asked int
}

func (o *oneAccount) Account(context.Context) (AccountInfo, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	return o.info, nil
}

func (o *oneAccount) asks() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked
}

// The overview has the server and what the account uses of its limits. A user that may not ask is refused once a minute, and the state is not known.
func TestAccountOnTheOverview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &oneAccount{info: AccountInfo{Server: "n1", Version: "2.15.2", Cluster: "C", Info: &jetstream.AccountInfo{
			Tiers: map[string]jetstream.Tier{
				"R1": {Streams: 3, Limits: jetstream.AccountLimits{MaxStreams: -1, MaxStore: -1}},
				"R3": {Streams: 9, Store: 950 << 20, Limits: jetstream.AccountLimits{MaxStreams: 10, MaxStore: 1 << 30}},
			},
			API: jetstream.APIStats{Total: 1000, Errors: 7},
		}}}
		s := sample.New()
		defer s.Close()
		a := NewAccount(s, source)
		facts := func() map[string]string {
			synctest.Wait()
			all := map[string]string{}
			for _, fact := range a.Overview(t.Context(), Request{}).Facts {
				all[fact.Name] = fact.Value.Text
			}
			return all
		}
		all := facts()
		for name, want := range map[string]string{
			"Server": "n1", "Version": "2.15.2", "Cluster": "C", "Streams in R1": "3", "Streams in R3": "9 of 10", "Storage in R3": "950.0 MiB of 1.0 GiB",
			"Requests answered with an error": "7",
		} {
			require.Equal(t, want, all[name], name)
		}
		part := a.Overview(t.Context(), Request{}).Part
		require.Equal(t, []any{"The account uses 950.0 MiB of 1.0 GiB of storage in R3.", view.Warn}, []any{part.Problem, part.ProblemTone})
		require.Equal(t, state.Amber, a.Overview(t.Context(), Request{}).Judged.Objects[0].State.Level)

		source.mu.Lock()
		source.info.Info, source.info.Err = nil, errors.New("the user may not ask")
		source.mu.Unlock()
		time.Sleep(10 * refusedEvery)
		part = a.Overview(t.Context(), Request{}).Part
		require.Equal(t, []any{"What the account uses of its limits is not known now: the user may not ask.", view.Muted}, []any{part.Problem, part.ProblemTone})
		require.Equal(t, "n1", facts()["Server"])
		asked := source.asks()
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 10, source.asks()-asked, 1)
	})
}

// A stream without a leader is red on the overview, in the list, even if it belongs to a system, and what it has is not known.
func TestStreamsInTrouble(t *testing.T) {
	led := func(name, leader string, replicas ...*jetstream.PeerInfo) *jetstream.StreamInfo {
		return &jetstream.StreamInfo{
			Config: jetstream.StreamConfig{Name: name, Subjects: []string{name}}, Cluster: &jetstream.ClusterInfo{Leader: leader, Replicas: replicas},
		}
	}
	source := &streams{newStream("ORDERS"), []*jetstream.StreamInfo{
		led("CALM", "n1"), led("ORDERS", ""), led("PAID", "n1", &jetstream.PeerInfo{Name: "n2", Offline: true}), led("relay_to_receiver", ""),
	}}
	source.all[3].Config.Subjects = []string{"relay.to_receiver.>"}
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, source)
		time.Sleep(time.Minute)
		synctest.Wait()
		part := r.pages.Overview(t.Context(), Request{})
		require.Equal(t, "2 of 4 streams are in trouble. 1 more should be looked at.", part.Problem)
		var rows []string
		for _, row := range part.List.Rows {
			rows = append(rows, row.Cells[0].Text+": "+row.Cells[1].Text)
		}
		require.Equal(t, []string{"ORDERS: no leader", "relay_to_receiver: no leader", "PAID: replica offline"}, rows)
		list, err := r.pages.streams(t.Context(), Request{Query: map[string][]string{}, Now: time.Now()})
		require.NoError(t, err)
		require.Len(t, list.Parts[0].List.Rows, 4)
		letters := r.pages.letters.latest.Next(t.Context()).Value
		require.Equal(t, state.Letters{More: true}, r.pages.letters.letters(letters[1:2]), "its dead letters are not known")
		require.Equal(t, state.Red, r.pages.Overview(t.Context(), Request{}).Judged.Objects[1].State.Level)
	})
}
