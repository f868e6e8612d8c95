package page

import (
	"github.com/jetpull/jetpull/console/internal/alert"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/feed"
)

// judged is what a source answered last, with the states of its objects.
func judged[S, T any](name string, s sample.Sample[S], all []T, object func(T) alert.Object) alert.Sample {
	out := alert.Sample{Source: sourceState(name, s), At: s.At}
	for _, one := range all {
		out.Objects = append(out.Objects, object(one))
	}
	return out
}

// Judged implements [Summary].
func (c *Consumers) Judged() alert.Sample {
	s := c.latest.Get()
	return judged("NATS", s, s.Value, (*consumer).object)
}

func (c *consumer) object() alert.Object {
	return alert.Object{Kind: "consumer", Name: c.key, Path: link("consumer", "stream", c.Stream, "name", c.Name), State: c.state}
}

// Judged implements [Summary].
func (m *Messages) Judged() alert.Sample {
	s := m.latest.Get()
	return judged("NATS", s, s.Value, judgedStream.object)
}

func (s judgedStream) object() alert.Object {
	return alert.Object{Kind: "stream", Name: s.Config.Name, Path: link("stream", "name", s.Config.Name), State: s.state}
}

// Judged implements [Summary]. Sets are read less often than the source is asked.
func (p *Partitions) Judged() alert.Sample {
	s := p.latest.Get()
	out := judged("NATS", s, s.Value.all, judgedSet.object)
	out.At = s.Value.at
	return out
}

func (s judgedSet) object() alert.Object {
	return alert.Object{Kind: "partition set", Name: s.Name, Path: link("set", "name", s.Name), State: s.state}
}

// Judged implements [Summary]. The dead letters of a stream are an object.
func (d *DeadLetters) Judged() alert.Sample {
	s := d.latest.Get()
	object := func(name string, l state.Letters) alert.Object {
		return alert.Object{Kind: "dead letters", Name: name, Path: link("deadletters", "stream", name), State: l.Of()}
	}
	out := judged("NATS", s, s.Value.found, func(one letterStream) alert.Object {
		return object(one.Config.Name, d.letters(letterStreams{found: []letterStream{one}}))
	})
	for name, l := range s.Value.others {
		out.Objects = append(out.Objects, object(name, l))
	}
	return out
}

// Judged implements [Summary]. A feed is one object.
func (f *Feed) Judged() alert.Sample {
	s := f.latest.Get()
	return judged(feedName, s, []feed.Backlog{s.Value}, func(b feed.Backlog) alert.Object {
		return alert.Object{Kind: "feed", Name: feedName, Path: "feed", State: feedState(b)}
	})
}
