package jetpull

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// checkDeadLetter refuses a dead letter subject that no stream stores, and one
// whose messages come back to the consumer, in the same stream or in one that
// takes messages over from the stream of the dead letters: that would be a loop.
func (s *Subscription) checkDeadLetter(ctx context.Context, set *settings) error {
	subject := set.streaming.deadLetter
	if subject == "" {
		return nil
	}
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	stream, err := s.js.StreamNameBySubject(ctx, subject)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return invalid("DeadLetter", "no stream stores subject %q; create one", subject)
	}
	if err != nil {
		return requestError("find the stream of dead letter subject "+subject, "STREAM.NAMES", err)
	}
	if stream == s.stream && s.delivers(subject) {
		return invalid("DeadLetter", "%q is delivered by consumer %q itself, which would be a loop; use a subject outside its filter", subject, s.consumer)
	}
	as, err := s.arrivals(ctx, s.stream, stream, subject, map[string]bool{})
	if errors.Is(err, nats.ErrPermissionViolation) {
		set.logger.Warn("jetpull: whether dead letters come back to the consumer cannot be told", "stream", s.stream, "consumer", s.consumer, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(as, s.delivers) {
		return nil
	}
	if stream == s.stream {
		return invalid("DeadLetter", "%q comes back to consumer %q, which would be a loop: stream %q stores it under another subject, by its SubjectTransform or its Sources; use a subject that these leave out", subject, s.consumer, s.stream)
	}
	return invalid("DeadLetter", "%q comes back to consumer %q, which would be a loop: stream %q takes it over from stream %q by its Sources or Mirror; use a subject that these leave out", subject, s.consumer, s.stream, stream)
}

// publishable reports whether subject can be published to: tokens between
// dots, without spaces and wildcards.
func publishable(subject string) bool {
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || strings.ContainsAny(token, " \t\r\n\f*>") {
			return false
		}
	}
	return true
}

// arrivals are the subjects under which a message that the stream named origin
// takes under subject is in the stream named into: its own, or what the stream or
// the way there makes of it, as patterns. Streams of other accounts and domains are not followed,
// nor is what a stream republishes. seen are the streams on the way.
func (s *Subscription) arrivals(ctx context.Context, into, origin, subject string, seen map[string]bool) (as []string, err error) {
	if seen[into] {
		return nil, nil
	}
	seen[into] = true
	defer delete(seen, into)
	var stream jetstream.Stream
	api := apiPrefix(s.js) + "STREAM.INFO." + into
	err = request(ctx, s.nc, api, func(ctx context.Context) (err error) {
		stream, err = s.js.Stream(ctx, into)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, requestError("look where dead letters go: stream info", api, err)
	}
	cfg := stream.CachedInfo().Config
	if into == origin {
		as = stored(cfg.SubjectTransform, subject)
	}
	sources := cfg.Sources
	if cfg.Mirror != nil {
		sources = append(slices.Clone(sources), cfg.Mirror)
	}
	for _, source := range sources {
		if source.External != nil || source.Domain != "" {
			continue
		}
		before, err := s.arrivals(ctx, source.Name, origin, subject, seen)
		if err != nil {
			return nil, err
		}
		for _, b := range before {
			as = append(as, takenOver(source, b)...)
		}
	}
	return as, nil
}

// stored is what a stream's own transform makes of a subject that it takes.
func stored(t *jetstream.SubjectTransformConfig, subject string) []string {
	if t == nil || t.Destination == "" || t.Source != "" && !overlap(t.Source, subject) {
		return []string{subject}
	}
	return []string{transformed(t.Destination)}
}

// takenOver is what a source makes of a subject, or nothing if it leaves it out.
func takenOver(source *jetstream.StreamSource, subject string) (as []string) {
	if source.FilterSubject != "" && !overlap(source.FilterSubject, subject) {
		return nil
	}
	if len(source.SubjectTransforms) == 0 {
		return []string{subject}
	}
	for _, t := range source.SubjectTransforms {
		switch {
		case t.Source != "" && !overlap(t.Source, subject):
		case t.Destination == "":
			as = append(as, subject)
		default:
			as = append(as, transformed(t.Destination))
		}
	}
	return as
}

// transformed is the pattern of what a transform's destination can become.
func transformed(destination string) string {
	tokens := strings.Split(destination, ".")
	for i, token := range tokens {
		function, isFunction := strings.CutPrefix(token, "{{")
		switch {
		case isFunction && strings.HasPrefix(strings.ToLower(strings.TrimSpace(function)), "s"):
			// split and slice make any number of tokens.
			return strings.Join(append(tokens[:i:i], ">"), ".")
		case strings.Contains(token, "{{"), strings.HasPrefix(token, "$"):
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}

// delivers reports whether the consumer's filter matches subjects of a pattern.
func (s *Subscription) delivers(pattern string) bool {
	filters := s.config().FilterSubjects
	if s.config().FilterSubject != "" {
		filters = append([]string{s.config().FilterSubject}, filters...)
	}
	if len(filters) == 0 {
		return true
	}
	return slices.ContainsFunc(filters, func(f string) bool { return overlap(f, pattern) })
}

// overlap reports whether there are subjects that match both patterns.
func overlap(a, b string) bool {
	one, other := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(one), len(other)) {
		switch {
		case one[i] == ">" || other[i] == ">":
			return true
		case one[i] != "*" && other[i] != "*" && one[i] != other[i]:
			return false
		}
	}
	return len(one) == len(other)
}
