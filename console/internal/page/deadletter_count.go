package page

import (
	"cmp"
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
	// probesAtOnce limits the requests of one sample that search streams for dead letters.
	probesAtOnce = 32
	// probeEvery is how often a stream without a known dead letter is checked if more than letterWindow messages were not read. If there are more
	// than maxScanned, the stream is sampled: probeWindow is the number of its newest messages to read.
	probeEvery  = time.Minute
	probeWindow = 100
	// probeBytes limits the size of the messages that are read to find out that a stream has no dead letter.
	probeBytes = 32 << 20
	// recountAfter is how many times longer than a count the pause after it must be.
	recountAfter = 20
)

// letterStream is a stream that may have dead letters among other messages.
type letterStream struct {
	*jetstream.StreamInfo
	// letters are its dead letters, newest first. If next is not 0, the messages from next down have not been searched, of those up to the last one
	// of counted. Each message below low was read and is not a dead letter.
	letters   []letter
	next, low uint64
	counted   jetstream.StreamState

	sampled uint64        // the last sequence when the stream was last sampled
	tried   time.Time     // when it was last sampled, or when the count began that found the first dead letters
	again   time.Time     // when it was last recounted
	took    time.Duration // the duration of that count
	err     error
	missed  bool // there may be more dead letters than the known ones
}

type letter struct {
	seq                      uint64
	at                       time.Time
	reason                   string
	stream, origin, consumer string // of the message; origin is its sequence, and consumer gave it up
}

// ask finds the dead letters of all streams by their headers, whatever else the streams contain.
func (d *DeadLetters) ask(ctx context.Context) (all []letterStream, err error) {
	streams, err := d.source.Streams(ctx)
	if err != nil {
		return all, err
	}
	reads := probesAtOnce
	known := map[string]letterStream{}
	// Streams that have waited longest come first. Otherwise streams that change all the time would use all reads.
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
			s.StreamInfo, s.err = cmp.Or(s.StreamInfo, info), errors.New("no server leads the stream")
		}
		s.missed = leaderless || s.State.Msgs > 0 && (s.err != nil || s.next > 0 || s.tried.IsZero())
		all = append(all, s)
	}
	d.known = known
	slices.SortFunc(all, func(a, b letterStream) int { return strings.Compare(a.Config.Name, b.Config.Name) })
	return all, nil
}

// unread returns the number of messages that were not read, in a stream without a known dead letter.
func (s *letterStream) unread() uint64 { return min(s.State.Msgs, s.State.LastSeq+1-s.low) }

// look finds the dead letters of a stream. If none is known, it reads all unread messages if there are few. Otherwise it samples the stream from time
// to time, and reads it if the sample finds something.
func (d *DeadLetters) look(ctx context.Context, s *letterStream, info *jetstream.StreamInfo, reads *int) {
	if s.StreamInfo != nil && !s.Created.Equal(info.Created) {
		*s = letterStream{}
	}
	if info.State.LastSeq < s.counted.LastSeq || info.State.FirstSeq < s.counted.FirstSeq { // an older state was restored: recount
		s.low, s.counted = 0, jetstream.StreamState{NumDeleted: -1, LastSeq: info.State.LastSeq}
	}
	s.StreamInfo = info
	if len(s.letters) == 0 && s.next == 0 {
		unread := s.unread()
		if unread == 0 || s.sampled == s.State.LastSeq || *reads <= 0 {
			return
		}
		small := unread*(s.State.Bytes/s.State.Msgs) <= probeBytes
		if s.err == nil && time.Since(s.tried) < probeEvery && (!small || unread > letterWindow) {
			return
		}
		s.tried = time.Now()
		if small && unread <= maxScanned {
			*reads -= 1 + int(unread)/letterWindow
		} else if !d.sample(ctx, s, reads) {
			return
		}
		s.next, s.counted = s.State.LastSeq, s.State
	}
	d.tally(ctx, s)
}

// sample reports whether there is a dead letter, or an advisory that becomes one, among the newest messages of a stream, its first message, and the
// last message of each subject.
func (d *DeadLetters) sample(ctx context.Context, s *letterStream, reads *int) (hit bool) {
	visit := func(m *jetstream.RawStreamMsg) bool {
		hit = hit || isDeadLetter(m) || strings.HasPrefix(m.Subject, deadletter.Advisories)
		return !hit
	}
	back := func(from uint64, subject string, n int) {
		look := search{source: d.source, info: s.StreamInfo, subject: subject, low: s.low, most: n, atOnce: n}
		_, _, err := look.back(ctx, from, visit)
		s.err = cmp.Or(s.err, err)
		*reads--
	}
	s.err = nil
	back(s.State.LastSeq, "", probeWindow)
	back(s.State.FirstSeq, "", 1)
	for _, subject := range s.Config.Subjects[:min(len(s.Config.Subjects), probesAtOnce)] {
		if !hit && len(s.Config.Subjects) > 1 {
			back(s.State.LastSeq, subject, 1)
		}
	}
	if s.err == nil {
		s.sampled = s.State.LastSeq
	}
	return hit
}

// tally counts the dead letters of a stream. It reads new messages, and continues with older ones where the last sample stopped. After messages were
// deleted, it starts again with the newest, but not all the time.
func (d *DeadLetters) tally(ctx context.Context, s *letterStream) {
	now, old, begun := s.State, s.counted, time.Now()
	// Without gaps, deleted messages are below the first sequence. Otherwise they may be anywhere.
	changed := len(s.letters) > 0 && (now.NumDeleted != old.NumDeleted || now.FirstSeq != old.FirstSeq && now.NumDeleted > 0)
	again := changed && begun.Sub(s.again) >= recountAfter*s.took
	look := search{source: d.source, info: s.StreamInfo, low: s.low, most: maxScanned, atOnce: letterWindow}
	switch {
	case again:
		s.letters, s.next, s.again = nil, now.LastSeq, begun
	case now.LastSeq > old.LastSeq:
		recent := look
		recent.low = old.LastSeq + 1
		added, next, err := d.add(ctx, recent, now.LastSeq, nil)
		if s.err = err; err != nil {
			return // read them again later
		}
		if next > 0 {
			s.letters, s.next = added, next
		} else {
			s.letters = append(added, s.letters...)
		}
	}
	if s.next > 0 && len(s.letters) < maxScanned {
		s.letters, s.next, s.err = d.add(ctx, look, s.next, s.letters)
	}
	if s.counted = now; again {
		s.took = time.Since(begun)
	} else if changed {
		s.counted.NumDeleted = -1 // recount later
	}
	if s.next < now.FirstSeq {
		s.next, s.err = 0, nil
	}
	// The stream may have removed its oldest letters.
	s.letters = s.letters[:sort.Search(len(s.letters), func(i int) bool { return s.letters[i].seq < now.FirstSeq })]
	if s.next == 0 && len(s.letters) == 0 {
		s.low = now.LastSeq + 1
	}
}

// add returns letters and those that a search finds from a sequence down. It also returns where the search continues.
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
		letters = append(letters, letter{
			m.Sequence, m.Time, h.Get(jetpull.HeaderDeadReason), h.Get(jetpull.HeaderDeadStream),
			h.Get(jetpull.HeaderDeadSequence), h.Get(jetpull.HeaderDeadConsumer),
		})
		return true
	})
	return letters, next, err
}

// letters returns the numbers of dead letters of several streams.
func (d *DeadLetters) letters(streams []letterStream) (l state.Letters) {
	for _, s := range streams {
		if len(s.letters) == 0 {
			l.Sampled, l.More = l.Sampled+boolInt(!s.missed && s.unread() > 0), l.More || s.missed
			continue
		}
		mark := d.mark(s.StreamInfo)
		unseen := sort.Search(len(s.letters), func(i int) bool { return s.letters[i].seq <= mark.Sequence })
		l.Unseen, l.Seen = l.Unseen+unseen, l.Seen+len(s.letters)-unseen
		l.More = l.More || s.next > mark.Sequence || s.err != nil
	}
	return l
}

// mark returns the mark of a stream. A stream that was recreated has none.
func (d *DeadLetters) mark(info *jetstream.StreamInfo) look {
	if one := d.marks.of("dead letters of " + info.Config.Name); one.Created.Equal(info.Created) {
		return one
	}
	return look{}
}

// lettersValue returns the number of dead letters that nobody has looked at.
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
