package page

import (
	"context"
	"errors"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/deadletter"
	"github.com/jetpull/jetpull/internal/systems"
)

const (
	// probesAtOnce bounds the requests of one sample that look for streams with dead letters.
	probesAtOnce = 32
	// probeEvery is how often a large stream without dead letters is looked at again, beyond its last message, and probeWindow how many messages then.
	probeEvery  = time.Minute
	probeWindow = 100
	// probeBytes bounds the messages of a stream that are read to find out that it has no dead letter.
	probeBytes = 32 << 20
	// recountAfter is how many times longer than a count the pause after it is.
	recountAfter = 20
)

// letterStream is a stream that has dead letters, among other messages.
type letterStream struct {
	*jetstream.StreamInfo
	// letters are its dead letters, newest first. Messages from next on downwards have not been searched, if next is above 0.
	letters []letter
	next    uint64
	counted jetstream.StreamState // when the letters were counted

	dead          bool   // it has had a dead letter
	probed        uint64 // the last message when the stream was last looked at without an error
	deep          uint64 // the same when not only its last message was; 0: never
	clear         uint64 // each message up to this one was read, and is no dead letter
	tried         time.Time
	deeply, begun time.Time
	took          time.Duration // of the last count from the newest message on
	err           error
}

type letter struct {
	seq                      uint64
	at                       time.Time
	reason                   string
	stream, origin, consumer string // of the message, with its sequence, and who has given it up
}

// letterStreams are the streams with dead letters, and what is known of the others.
type letterStreams struct {
	found  []letterStream
	others map[string]state.Letters // those without a known dead letter, by name
}

var errLeaderless = errors.New("no server leads the stream")

// ask finds the streams with dead letters, and counts these by their header, whatever else the streams have.
func (d *DeadLetters) ask(ctx context.Context) (all letterStreams, err error) {
	streams, err := d.source.Streams(ctx)
	if err != nil {
		return all, err
	}
	reads := probesAtOnce
	all.others = map[string]state.Letters{}
	known := map[string]letterStream{}
	// Those that wait the longest are looked at first, or streams that change all the time would use all reads.
	streams = slices.SortedStableFunc(slices.Values(streams), func(a, b *jetstream.StreamInfo) int {
		return d.known[a.Config.Name].tried.Compare(d.known[b.Config.Name].tried)
	})
	for _, info := range streams {
		name := info.Config.Name
		if systems.OfStream(name, info.Config.Subjects) != "" {
			continue
		}
		s, leaderless := d.known[name], state.Leaderless(info.Cluster)
		if !leaderless {
			d.look(ctx, &s, info, &reads)
		}
		if known[name] = s; leaderless {
			s.err = errLeaderless
		}
		if s.dead {
			all.found = append(all.found, s)
			continue
		}
		missed := leaderless || s.State.Msgs > 0 && (s.probed != s.State.LastSeq || s.deep == 0)
		all.others[name] = state.Letters{More: missed, Sampled: boolInt(!missed && s.State.Msgs > 0 && s.clear < s.State.LastSeq)}
	}
	d.known = known
	slices.SortFunc(all.found, func(a, b letterStream) int { return strings.Compare(a.Config.Name, b.Config.Name) })
	return all, nil
}

// look looks at a stream, if that is due.
func (d *DeadLetters) look(ctx context.Context, s *letterStream, info *jetstream.StreamInfo, reads *int) {
	if s.StreamInfo != nil && !s.Created.Equal(info.Created) {
		*s = letterStream{}
	}
	s.StreamInfo = info
	due := s.probed != s.State.LastSeq || s.deep != s.State.LastSeq && time.Since(s.deeply) >= probeEvery
	if !s.dead && s.State.Msgs > 0 && due && *reads > 0 {
		s.tried = time.Now()
		s.dead = d.probe(ctx, s, reads)
	}
	if s.dead {
		d.tally(ctx, s)
	}
}

// probe reports whether a stream has a dead letter, or an advisory that becomes one. It reads all messages that were not read yet, if these are few.
// Else it reads the last message, and from time to time also the first one, the newest ones, and the last one of each subject.
func (d *DeadLetters) probe(ctx context.Context, s *letterStream, reads *int) (hit bool) {
	stop := func(m *jetstream.RawStreamMsg) bool {
		hit = hit || isDeadLetter(m) || strings.HasPrefix(m.Subject, deadletter.Advisories)
		return !hit
	}
	back := func(look search) bool {
		look.source, look.info = d.source, s.StreamInfo
		next, n, err := look.back(ctx, s.State.LastSeq, stop)
		*reads -= 1 + n/letterWindow
		if err == nil && next == 0 && look.subject == "" {
			s.clear = s.State.LastSeq
		}
		return err == nil
	}
	deeply := time.Since(s.deeply) >= probeEvery
	unread := min(s.State.Msgs, s.State.LastSeq-s.clear)
	few := (unread <= letterWindow || deeply && unread <= maxScanned) && unread*(s.State.Bytes/s.State.Msgs) <= probeBytes
	var ok bool
	switch {
	case few:
		ok = back(search{low: s.clear + 1, most: maxScanned, atOnce: letterWindow})
	case !deeply:
		ok = back(search{most: 1, atOnce: 1})
	default:
		ok = back(search{most: probeWindow, atOnce: probeWindow})
		*reads--
		first, err := d.source.Messages(ctx, s.StreamInfo, s.State.FirstSeq, ">", 1)
		ok = ok && err == nil
		for _, m := range first {
			stop(m)
		}
		for _, subject := range s.Config.Subjects[:min(len(s.Config.Subjects), probesAtOnce)] {
			if !hit && len(s.Config.Subjects) > 1 {
				ok = back(search{subject: subject, most: 1, atOnce: 1}) && ok
			}
		}
	}
	if ok {
		s.probed = s.State.LastSeq
	}
	if ok && deeply {
		s.deeply = time.Now()
	}
	if ok && (few && s.clear == s.State.LastSeq || !few && deeply) {
		s.deep = s.probed
	}
	return hit
}

// tally counts the dead letters of a stream. It reads the messages that are new, and goes on with older ones where the last count stopped. After
// messages were deleted it counts again from the newest on, but not all the time.
func (d *DeadLetters) tally(ctx context.Context, s *letterStream) {
	now, old := s.State, s.counted
	// Without gaps, what is gone is below the first sequence. Else it may be anywhere.
	again := s.begun.IsZero() || now.LastSeq < old.LastSeq || now.FirstSeq < old.FirstSeq || now.NumDeleted != old.NumDeleted ||
		now.FirstSeq != old.FirstSeq && now.NumDeleted > 0
	if again && time.Since(s.begun) < recountAfter*s.took {
		return
	}
	if again {
		s.begun, s.letters, s.next = time.Now(), nil, now.LastSeq
	}
	look := search{source: d.source, info: s.StreamInfo, most: maxScanned, atOnce: letterWindow}
	if !again && now.LastSeq > old.LastSeq {
		look.low = old.LastSeq + 1
		added, next, err := d.add(ctx, look, now.LastSeq, nil)
		if s.err = err; err != nil || next > 0 {
			s.begun = time.Time{} // it is counted again: some of the new messages were not read
			return
		}
		s.letters = append(added, s.letters...)
	} else if s.next > 0 && len(s.letters) < maxScanned {
		s.letters, s.next, s.err = d.add(ctx, look, s.next, s.letters)
	}
	if again {
		s.took = time.Since(s.begun)
	}
	s.counted = now
	if s.next < now.FirstSeq {
		s.next = 0
	}
	// The stream may have removed letters at its begin.
	s.letters = s.letters[:sort.Search(len(s.letters), func(i int) bool { return s.letters[i].seq < now.FirstSeq })]
	if s.next == 0 && len(s.letters) == 0 && s.err == nil {
		s.probed, s.deep = now.LastSeq, now.LastSeq
		s.dead, s.begun, s.clear = false, time.Time{}, now.LastSeq // until a probe finds another
	}
}

// add returns letters with those that a search finds from a sequence on downwards, and where the search goes on.
func (d *DeadLetters) add(ctx context.Context, look search, from uint64, letters []letter) ([]letter, uint64, error) {
	letters = slices.Clone(letters)
	next, _, err := look.back(ctx, from, func(m *jetstream.RawStreamMsg) bool {
		if !isDeadLetter(m) {
			return true
		}
		if len(letters) == maxScanned {
			return false
		}
		h := m.Header
		letters = append(letters, letter{m.Sequence, m.Time, h.Get(jetpull.HeaderDeadReason), h.Get(jetpull.HeaderDeadStream),
			h.Get(jetpull.HeaderDeadSequence), h.Get(jetpull.HeaderDeadConsumer)})
		return true
	})
	return letters, next, err
}

// letters are the numbers of dead letters of some streams.
func (d *DeadLetters) letters(streams letterStreams) state.Letters {
	l := state.Letters{}
	for _, s := range streams.others {
		l.Sampled, l.More = l.Sampled+s.Sampled, l.More || s.More
	}
	for _, s := range streams.found {
		mark := d.mark(s.StreamInfo)
		unseen := sort.Search(len(s.letters), func(i int) bool { return s.letters[i].seq <= mark.Sequence })
		l.Unseen, l.Seen = l.Unseen+unseen, l.Seen+len(s.letters)-unseen
		l.More = l.More || s.next > mark.Sequence || s.err != nil
	}
	return l
}

// mark is that of a stream. A stream that was created again has none.
func (d *DeadLetters) mark(info *jetstream.StreamInfo) look {
	if one := d.marks.of("dead letters of " + info.Config.Name); one.Created.Equal(info.Created) {
		return one
	}
	return look{}
}

// lettersValue is the number of dead letters that nobody has looked at.
func lettersValue(l state.Letters) view.Value {
	v := quietZero(view.Int(l.Unseen), l.Unseen > 0, view.Bad)
	switch {
	case l.Unseen == 0 && (l.More || l.Sampled > 0):
		v.Text, v.Title = "none found", l.Of().Sentence
	case l.More:
		v.Text += "+"
	}
	return v
}
