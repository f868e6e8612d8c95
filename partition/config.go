package partition

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// Config is what a Set is made of. All processes open a set with the same name, number of partitions and subject.
type Config struct {
	// Name is unique in the account: 1 to 64 letters, digits, '-' and '_'. The consumers are NAME-0, NAME-1, and so on; the bucket
	// is partition-NAME.
	Name string
	// Partitions is their number, 1 to 1,024.
	Partitions int
	// Subject is the pattern of the messages as they are stored, with one token {partition}: "orders.{partition}.>".
	Subject string
	// MaxAckPending is how many messages of a partition can be with its owner; 0 means 256.
	MaxAckPending int
	// AckWait is that of the consumers, at least 100 ms; 0 means 30 s. Consume reports that long handlers are in progress.
	AckWait time.Duration
	// TTL is how long a member can be silent before it is gone: at least 1 s, in whole seconds; 0 means 10 s.
	TTL time.Duration
}

const placeholder = "{partition}"

func invalid(format string, args ...any) error {
	return fmt.Errorf("partition: %w: %s", jetpull.ErrInvalidOption, fmt.Sprintf(format, args...))
}

// complete sets the defaults and refuses what cannot work.
func (c *Config) complete() error {
	if c.MaxAckPending == 0 {
		c.MaxAckPending = 256
	}
	if c.AckWait == 0 {
		c.AckWait = 30 * time.Second
	}
	if c.TTL == 0 {
		c.TTL = 10 * time.Second
	}
	tokens := strings.Split(c.Subject, ".")
	switch {
	case !validName(c.Name):
		return invalid("Name %q: use 1 to 64 letters, digits, '-' and '_'", c.Name)
	case c.Partitions < 1 || c.Partitions > 1024:
		return invalid("Partitions %d is not in 1..1024", c.Partitions)
	case strings.Count(c.Subject, placeholder) != 1 || !slices.Contains(tokens, placeholder) || slices.Contains(tokens, "") || strings.ContainsAny(c.Subject, " \t\r\n"):
		return invalid("Subject %q: give a subject with one token %s, as in %q", c.Subject, placeholder, "orders.{partition}.>")
	case c.MaxAckPending < 1:
		return invalid("MaxAckPending %d is below 1; leave it out for 256", c.MaxAckPending)
	case c.AckWait < 100*time.Millisecond:
		return invalid("AckWait %v is below 100ms; leave it out for 30s", c.AckWait)
	case c.TTL < time.Second || c.TTL%time.Second != 0:
		return invalid("TTL %v: keys on the server live for whole seconds, 1s at least; leave it out for 10s", c.TTL)
	}
	return nil
}

var name = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// validName reports whether a name can be part of the names of consumers and buckets, and of keys.
func validName(s string) bool { return name.MatchString(s) }

// filter is the subjects of a partition; * stands for all of them.
func (c *Config) filter(partition string) string {
	return strings.Replace(c.Subject, placeholder, partition, 1)
}

var mapping = regexp.MustCompile(`^\{\{\s*[Pp]artition\(\s*(\d+)`)

// checkStream refuses a stream whose subjects have no partition at that place, or another number of them.
func (c *Config) checkStream(stream *jetstream.StreamConfig) error {
	stored := stream.Subjects
	if t := stream.SubjectTransform; t != nil && t.Destination != "" {
		stored = []string{t.Destination}
	}
	for _, subject := range stored {
		token, ok := c.tokenIn(strings.Split(subject, "."))
		if !ok {
			continue
		}
		if number := mapping.FindStringSubmatch(token); len(number) > 1 && number[1] != strconv.Itoa(c.Partitions) {
			return invalid("Partitions %d: stream %q makes %s of them in %q; open the set with that number", c.Partitions, stream.Name, number[1], subject)
		}
		return nil
	}
	return invalid("Subject %q: stream %q stores %q, so no message has a partition there; give the stream the SubjectTransform that partition.Transform returns, or publish with a token that is partition.Of the key", c.Subject, stream.Name, stored)
}

// tokenIn returns the token that subjects of a stream have in the place of the partition. ok is false where the stream's subject does not
// overlap with the set's, or has always the same token there.
func (c *Config) tokenIn(stream []string) (token string, ok bool) {
	varies := func(t string) bool { return t == "*" || strings.HasPrefix(t, "{{") || strings.HasPrefix(t, "$") }
	own := strings.Split(c.Subject, ".")
	for i, t := range own {
		switch {
		case i >= len(stream):
			return "", false
		case stream[i] == ">":
			return token, true
		case t == placeholder && !varies(stream[i]):
			return "", false
		case t == placeholder:
			token = stream[i]
		case t == ">":
			return token, true
		case t != stream[i] && t != "*" && !varies(stream[i]):
			return "", false
		}
	}
	return token, len(own) == len(stream)
}
