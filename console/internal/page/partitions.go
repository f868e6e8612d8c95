package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/partition"
)

// PartitionSet is a set of package partition.
type PartitionSet struct {
	Name, Stream, Subject string
	// TTL is how long a member may be silent before it counts as gone.
	TTL        time.Duration
	Partitions []partition.Partition
	// Err is why the partitions are not known, or nil.
	Err error
}

// PartitionSource reads the sets of partitions of an account.
type PartitionSource interface {
	PartitionSets(ctx context.Context) ([]PartitionSet, error)
}

// Partitions has the pages of the sets of partitions.
type Partitions struct {
	Family
	source    PartitionSource
	latest    *sample.Latest[[]judgedSet]
	all       *objects[judgedSet]
	consumers *Consumers
	// before contains the sets of the last sample, by name. Only the sampler's goroutine uses it.
	before map[string]judgedSet
}

// judgedSet is a set with its state, the numbers of messages that wait and that members have, and the number of partitions of each member.
type judgedSet struct {
	PartitionSet
	state               state.State
	since               since
	pending, ackPending uint64
	members             map[string]int
	judged              []state.Partition // in the order of Partitions
	free                map[int]time.Time // when a partition was first seen without an owner
}

// NewPartitions returns the pages. The sampler asks their source. The state of a partition includes that of its consumer.
func NewPartitions(s *sample.Sampler, source PartitionSource, consumers *Consumers) *Partitions {
	p := &Partitions{source: source, consumers: consumers, all: &objects[judgedSet]{
		noun: "set", name: func(s judgedSet) string { return s.Name },
		fits: func(q url.Values, s judgedSet) bool { return contains(q.Get("q"), s.Name, s.Stream) },
	}}
	p.Family = Family{"Partition sets", "sets", map[string]Func{"sets": p.list, "set": p.one}}
	p.latest = sample.Add(s, p.ask)
	return p
}

func (p *Partitions) ask(ctx context.Context) ([]judgedSet, error) {
	sets, err := p.source.PartitionSets(ctx)
	if err != nil {
		return nil, err
	}
	states := map[string]state.State{} // of the consumers; an unknown consumer has none
	if consumers, known := p.consumers.audience(ctx); known {
		for _, one := range consumers {
			states[one.key] = one.state
		}
	}
	now := time.Now()
	all, known := make([]judgedSet, len(sets)), map[string]judgedSet{}
	for i, s := range sets {
		before := p.before[s.Name]
		one := before.next(s, states, now)
		if one.since = (since{now, p.before == nil}); before.state.Word == one.state.Word {
			one.since = before.since
		}
		all[i], known[s.Name] = one, one
	}
	p.before = known
	return all, nil
}

func worstSet(a, b judgedSet) int {
	return cmp.Or(cmp.Compare(a.state.Level, b.state.Level), cmp.Compare(a.Name, b.Name))
}

// next returns the set of the next sample with its state, from the states of all consumers, by key.
func (s judgedSet) next(set PartitionSet, states map[string]state.State, now time.Time) judgedSet {
	next := judgedSet{PartitionSet: set, members: map[string]int{}, free: map[int]time.Time{}}
	if set.Err != nil {
		next.free = s.free // whether a partition has an owner is not known
	}
	for _, one := range set.Partitions {
		next.pending, next.ackPending = next.pending+one.Pending, next.ackPending+one.AckPending
		judged := state.Partition{Number: one.Number, Consumer: states[set.Stream+"/"+set.consumer(one.Number)]}
		if one.Member == "" {
			next.free[one.Number] = cmp.Or(s.free[one.Number], now)
			judged.Free = max(1, now.Sub(next.free[one.Number]))
		} else {
			next.members[one.Member]++
		}
		next.judged = append(next.judged, judged)
	}
	counts := slices.Collect(maps.Values(next.members))
	next.state = state.Set{Err: set.Err, TTL: set.TTL, Pending: next.pending, Counts: counts, Partitions: next.judged}.Of()
	return next
}

// consumer returns the name of a partition's consumer.
func (s *PartitionSet) consumer(number int) string { return s.Name + "-" + strconv.Itoa(number) }

// known reports whether the partitions are known now.
func (s judgedSet) known() bool { return s.Err == nil }

// setColumns are the columns of the list. The page of a set shows the values from the third on.
var setColumns = append([]column[judgedSet]{
	text("Set", func(s judgedSet) view.Value { return view.Linked(s.Name, link("set", "name", s.Name)) }),
	text("State", func(s judgedSet) view.Value { return s.state.Value() }).by("state", worstSet),
	text("Stream", func(s judgedSet) view.Value { return view.Linked(s.Stream, link("messages", "stream", s.Stream)) }),
	text("Subject", func(s judgedSet) view.Value { return view.Text(s.Subject) }).wide(),
}, ifKnown(judgedSet.known,
	number("Partitions", func(s judgedSet) view.Value { return view.Int(len(s.Partitions)) }),
	number("Members", func(s judgedSet) view.Value { return view.Int(len(s.members)) }),
	number("Pending", func(s judgedSet) view.Value { return view.Number(s.pending) }),
	number("Ack pending", func(s judgedSet) view.Value { return view.Number(s.ackPending) }),
)...)

func (p *Partitions) list(ctx context.Context, r Request) (*view.Page, error) {
	s, list := p.latest.Fresh(ctx), &view.List{
		Path: "sets", Empty: "This list shows sets of partitions. Each partition of a set has one member at a time. In Go, partition.Open makes a set.",
	}
	return p.all.page(r, "Partition sets", source("NATS", s), list, s.Value, setColumns, searchField(r.Query, "q", "Set or stream", "name")), nil
}

func (p *Partitions) one(ctx context.Context, r Request) (*view.Page, error) {
	name := r.Query.Get("name")
	s, sample, found := lookup(ctx, p.latest, whole, func(s judgedSet) bool { return s.Name == name })
	part := view.Part{ID: "set", Source: source("NATS", sample)}
	switch {
	case !found && !sample.Stale():
		return nil, notFound("The list of sets shows all that there are.", "There is no set %q.", name)
	case found:
		part.Problem, part.ProblemTone = s.state.Sentence, s.state.Level.Tone()
		part.Facts = append(facts(s, setColumns[2:]), view.Fact{Name: "A silent member is gone after", Value: view.Duration(s.TTL)})
		part.List = &view.List{
			Found: whenKnown(s.known(), view.Value{Text: view.Bounded(len(s.Partitions), false, "partition")}).Text,
			Path:  "set", Query: r.Query, Empty: "The partitions are not known now.",
			Columns: view.Columns("Partition", "State", "Member", ">Since", ">Pending", ">Ack pending"),
		}
	}
	for i, one := range s.Partitions {
		member := view.None("No member has this partition now")
		if one.Member != "" {
			member = view.Code(one.Member)
		}
		part.List.Add(fmt.Sprint("p-", one.Number),
			view.Linked(strconv.Itoa(one.Number), link("consumer", "stream", s.Stream, "name", s.consumer(one.Number))), s.judged[i].Consumer.Value(), member,
			view.Ago(one.Since, "No member has it"), view.Number(one.Pending), view.Number(one.AckPending))
	}
	return &view.Page{Nav: "sets", Title: name, Crumbs: []view.Link{{Text: "Partition sets", Href: "sets"}}, Parts: []view.Part{part}}, nil
}
