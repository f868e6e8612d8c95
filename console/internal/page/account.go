package page

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/alert"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
)

// AccountSource reads how much the connection's account uses of its limits. An error means that there is no connection.
type AccountSource interface {
	Account(ctx context.Context) (AccountInfo, error)
}

// AccountInfo describes the server of the connection, and its account.
type AccountInfo struct {
	Server, Version, Cluster string // empty if not reported
	// Info is nil if Err is set, for example because the user may not ask.
	Info *jetstream.AccountInfo
	Err  error
}

// Account is the part of the overview about the server and the account.
type Account struct {
	source AccountSource
	latest *sample.Latest[AccountInfo]
	// before was read at asked. Only the sampler's goroutine uses them.
	before AccountInfo
	asked  time.Time
}

// refusedEvery is how often the account is read after an error. If the user may not ask, the server logs each request that it refuses.
const refusedEvery = time.Minute

// NewAccount returns the part. The sampler asks the source.
func NewAccount(s *sample.Sampler, source AccountSource) *Account {
	a := &Account{source: source}
	a.latest = sample.Add(s, a.ask)
	return a
}

func (a *Account) ask(ctx context.Context) (AccountInfo, error) {
	if a.before.Err != nil && time.Since(a.asked) < refusedEvery {
		return a.before, nil
	}
	info, err := a.source.Account(ctx)
	if err == nil {
		a.before, a.asked = info, time.Now()
	}
	return info, err
}

// uses returns the uses of each replication tier that has its own limits, or of the whole account.
func (s AccountInfo) uses() (all []state.Use) {
	if s.Info == nil {
		return nil
	}
	tiers := s.Info.Tiers
	if len(tiers) == 0 {
		tiers = map[string]jetstream.Tier{"": s.Info.Tier}
	}
	for _, name := range slices.Sorted(maps.Keys(tiers)) {
		t, of := tiers[name], ""
		if name != "" {
			of = " in " + name
		}
		all = append(all,
			state.Use{Noun: "streams" + of, Used: uint64(max(0, t.Streams)), Limit: int64(t.Limits.MaxStreams)},
			state.Use{Noun: "consumers" + of, Used: uint64(max(0, t.Consumers)), Limit: int64(t.Limits.MaxConsumers)},
			state.Use{Noun: "memory" + of, Used: t.Memory, Limit: t.Limits.MaxMemory, Bytes: true},
			state.Use{Noun: "storage" + of, Used: t.Store, Limit: t.Limits.MaxStore, Bytes: true})
	}
	return all
}

// Overview implements [Summary].
func (a *Account) Overview(ctx context.Context, _ Request) Digest {
	return overview(ctx, "account", "NATS server and account", "NATS", a.latest, func(part *view.Part, now AccountInfo) []alert.Object {
		st := state.Account{Err: now.Err, Uses: now.uses()}.Of()
		part.Problem, part.ProblemTone = st.Sentence, st.Level.Tone()
		part.Facts = []view.Fact{
			{Name: "Server", Value: view.Text(now.Server)},
			{Name: "Version", Value: view.Text(now.Version)},
			{Name: "Cluster", Value: view.Text(cmp.Or(now.Cluster, "none"))},
		}
		for _, use := range now.uses() {
			part.Facts = append(part.Facts, view.Fact{Name: capital(use.Noun), Value: use.Value()})
		}
		if info := now.Info; info != nil {
			part.Facts = append(part.Facts, view.Fact{Name: "Requests answered with an error", Value: view.Number(info.API.Errors)})
		}
		return []alert.Object{{Kind: "account", Name: "NATS account", Path: "overview", State: st}}
	})
}
