package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/wire"
)

// Config is the configuration of a Set. All processes open a set with the same name, number of partitions, subject and TTL.
type Config struct {
	// Name is unique in the account: 1 to 64 letters, digits, '-' and '_'. The consumers are NAME-0, NAME-1, and so on. The bucket is partition-NAME.
	Name string
	// Partitions is the number of partitions, 1 to 1,024.
	Partitions int
	// Subject is the pattern of the messages as they are stored, with one token {partition}: "orders.{partition}.>".
	Subject string
	// MaxAckPending is the consumers' MaxAckPending: the maximum number of messages of a partition that are delivered and not acknowledged. 0 means
	// 256.
	MaxAckPending int
	// AckWait is the consumers' AckWait, at least 100 ms. 0 means 30 s. Handlers may take longer, because Consume reports their messages as in
	// progress.
	AckWait time.Duration
	// TTL is the time without a heartbeat after which a member counts as gone, at least 1 s. 0 means 10 s.
	TTL time.Duration
}

const placeholder = "{partition}"

func invalid(format string, args ...any) error {
	return fmt.Errorf("partition: %w: %s", jetpull.ErrInvalidOption, fmt.Sprintf(format, args...))
}

func invalidIf(bad bool, format string, args ...any) error {
	if !bad {
		return nil
	}
	return invalid(format, args...)
}

// complete sets the defaults and refuses invalid values.
func (c *Config) complete() error {
	c.MaxAckPending = cmp.Or(c.MaxAckPending, 256)
	c.AckWait = cmp.Or(c.AckWait, 30*time.Second)
	c.TTL = cmp.Or(c.TTL, 10*time.Second)
	tokens := strings.Split(c.Subject, ".")
	oneToken := strings.Count(c.Subject, placeholder) == 1 && slices.Contains(tokens, placeholder)
	return cmp.Or(
		invalidIf(!validName(c.Name), "Name %q: use 1 to 64 letters, digits, '-' and '_'", c.Name),
		invalidIf(c.Partitions < 1 || c.Partitions > 1024, "Partitions %d is not in 1..1024", c.Partitions),
		invalidIf(!oneToken || slices.Contains(tokens, "") || strings.ContainsAny(c.Subject, " \t\r\n"),
			"Subject %q: give a subject with one token %s, as in %q", c.Subject, placeholder, "orders.{partition}.>"),
		invalidIf(c.MaxAckPending < 1, "MaxAckPending %d is below 1; leave it out for 256", c.MaxAckPending),
		invalidIf(c.AckWait < 100*time.Millisecond, "AckWait %v is below 100ms; leave it out for 30s", c.AckWait),
		invalidIf(c.TTL < time.Second, "TTL %v is below 1s; leave it out for 10s", c.TTL),
	)
}

// validName reports whether a name can be part of the names of consumers and buckets, and of keys.
var validName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`).MatchString

// filter returns the subject of a partition, or with the token "*" that of all.
func (c *Config) filter(token string) string {
	return strings.Replace(c.Subject, placeholder, token, 1)
}

var (
	adds    = regexp.MustCompile(`(?i)\{\{\s*partition\(\s*(\d+)[^}]*\}\}`)
	several = regexp.MustCompile(`(?i)\{\{\s*(split|slice).*`)
	one     = regexp.MustCompile(`\{\{[^}]*\}\}|\$\d+`)
)

const remedy = "give the stream the SubjectTransform that partition.Transform returns, or publish with a token that is partition.Of the key"

// checkSubjects refuses a stream whose subjects have no partition at the place of {partition}, or another number of partitions.
func (c *Config) checkSubjects(stream *jetstream.StreamConfig) error {
	stored, want := slices.Clone(stream.Subjects), strings.Split(c.Subject, ".")
	if t := stream.SubjectTransform; t != nil && t.Destination != "" {
		stored = slices.DeleteFunc(stored, func(s string) bool { return wire.Matches(cmp.Or(t.Source, ">"), strings.Replace(s, ">", "*.>", 1)) })
		stored = append([]string{t.Destination}, stored...)
	}
	for _, subject := range stored {
		number := adds.FindStringSubmatch(subject)
		pattern := several.ReplaceAllString(adds.ReplaceAllString(subject, placeholder), ">")
		have := strings.Split(one.ReplaceAllString(pattern, "*"), ".")
		switch {
		case !jsstream.Overlap(have, want):
			continue
		case len(number) > 1 && (number[1] != strconv.Itoa(c.Partitions) || slices.Index(have, placeholder) != slices.Index(want, placeholder)):
			return invalid("Partitions %d of Subject %q: stream %q makes %s of them in %q; open the set with that number, and {partition} at that place",
				c.Partitions, c.Subject, stream.Name, number[1], subject)
		}
		return nil
	}
	return invalidIf(stream.Mirror == nil && len(stream.Sources) == 0, // subjects of other streams are not known
		"Subject %q: stream %q stores %q, so no message has a partition there; %s", c.Subject, stream.Name, stored, remedy)
}

// checkStream refuses a stream from which no message can arrive. If publishers add the partition, and the set is new, it checks that the last message
// on a matching subject has one.
func (s *Set) checkStream(ctx context.Context, stream jetstream.Stream, have infos) error {
	config := stream.CachedInfo().Config
	if err := s.cfg.checkSubjects(&config); err != nil {
		return err
	}
	for n := range s.cfg.Partitions {
		if have[n] == nil && config.Retention == jetstream.InterestPolicy {
			return invalid("stream %q has interest retention and no consumer %q, so it keeps no message of that partition; use another retention",
				s.stream, s.consumer(n))
		}
	}
	if t := config.SubjectTransform; len(have) > 0 || t != nil && adds.MatchString(t.Destination) {
		return nil
	}
	begin, _, _ := strings.Cut(s.cfg.Subject, placeholder)
	m, err := jsstream.Last(ctx, s.js, stream, s.cfg.filter("*"))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		m, err = jsstream.Last(ctx, s.js, stream, begin+">")
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("partition: read a message of stream %q: %w", s.stream, err)
	}
	for n := range s.cfg.Partitions {
		if wire.Matches(s.cfg.filter(strconv.Itoa(n)), m.Subject) {
			return nil
		}
	}
	return invalid("Subject %q: stream %q has a message on %q, which has no partition from 0 to %d there; %s",
		s.cfg.Subject, s.stream, m.Subject, s.cfg.Partitions-1, remedy)
}

// Of returns the partition of a key, from 0 to partitions-1. It computes the same number as the server's partition function. If the server hashes
// several tokens, key is their concatenation without dots. If partitions is less than 1, Of returns 0.
func Of(key string, partitions int) int {
	if partitions < 1 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(partitions)) //nolint:gosec // partitions is at most 1,024 in a Set, and never below 1
}

// Transform returns a SubjectTransform that inserts the partition as a token before the first wildcard of source. The partition is computed from that
// wildcard. With 64 partitions, "orders.*" becomes "orders.{{partition(64,1)}}.{{wildcard(1)}}". A source without a wildcard gets no partition, and
// [Open] refuses such a stream.
func Transform(partitions int, source string) jetstream.SubjectTransformConfig {
	tokens, wildcards := strings.Split(source, "."), 0
	for i, token := range tokens {
		if token == "*" {
			wildcards++
			tokens[i] = fmt.Sprintf("{{wildcard(%d)}}", wildcards)
		}
	}
	const first = "{{wildcard(1)}}"
	destination := strings.Replace(strings.Join(tokens, "."), first, fmt.Sprintf("{{partition(%d,1)}}.%s", partitions, first), 1)
	return jetstream.SubjectTransformConfig{Source: source, Destination: destination}
}
