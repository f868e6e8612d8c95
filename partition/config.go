package partition

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// Config is the configuration of a Set. All processes open a set with the same name, number of partitions and subject.
type Config struct {
	// Name is unique in the account: 1 to 64 letters, digits, '-' and '_'. The consumers are NAME-0, NAME-1, and so on; the bucket
	// is partition-NAME.
	Name string
	// Partitions is the number of partitions, 1 to 1,024.
	Partitions int
	// Subject is the pattern of the messages as they are stored, with one token {partition}: "orders.{partition}.>".
	Subject string
	// MaxAckPending is the consumers' MaxAckPending: the maximum number of messages of a partition that are delivered and not
	// acknowledged. 0 means 256.
	MaxAckPending int
	// AckWait is the consumers' AckWait, at least 100 ms. 0 means 30 s. Handlers may take longer: Consume reports that their
	// messages are in progress.
	AckWait time.Duration
	// TTL is the time without a heartbeat after which a member counts as gone, at least 1 s. 0 means 10 s.
	TTL time.Duration
}

const placeholder = "{partition}"

func invalid(format string, args ...any) error {
	return fmt.Errorf("partition: %w: %s", jetpull.ErrInvalidOption, fmt.Sprintf(format, args...))
}

// complete sets the defaults and refuses invalid values.
func (c *Config) complete() error {
	c.MaxAckPending = cmp.Or(c.MaxAckPending, 256)
	c.AckWait = cmp.Or(c.AckWait, 30*time.Second)
	c.TTL = cmp.Or(c.TTL, 10*time.Second)
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
	case c.TTL < time.Second:
		return invalid("TTL %v is below 1s; leave it out for 10s", c.TTL)
	}
	return nil
}

// validName reports whether a name can be part of the names of consumers and buckets, and of keys.
var validName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`).MatchString

var mapping = regexp.MustCompile(`^\{\{\s*[Pp]artition\(\s*(\d+)`)

// checkStream refuses a stream whose subjects have no partition at that place, or another number of them.
func (c *Config) checkStream(stream *jetstream.StreamConfig) error {
	stored := stream.Subjects
	if t := stream.SubjectTransform; t != nil && t.Destination != "" {
		stored = []string{t.Destination}
	}
	for _, subject := range stored {
		token, ok := c.tokenIn(subject)
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

// tokenIn returns the token that a subject of the stream has in the place of the partition. ok is false where the subject does not
// overlap with the set's up to there, or has always the same token there.
func (c *Config) tokenIn(subject string) (token string, ok bool) {
	stored := strings.Split(subject, ".")
	for i, own := range strings.Split(c.Subject, ".") {
		if i >= len(stored) {
			return "", false
		}
		token = stored[i]
		varies := token == "*" || token == ">" || strings.HasPrefix(token, "{{") || strings.HasPrefix(token, "$")
		switch {
		case own == placeholder || token == ">":
			return token, varies
		case own != token && own != "*" && !varies:
			return "", false
		}
	}
	return "", false
}

// resize changes the number of partitions in a stream's SubjectTransform, and reports whether it has one.
func (c *Config) resize(stream *jetstream.StreamConfig, partitions int) bool {
	if stream.SubjectTransform == nil {
		return false
	}
	to := *stream.SubjectTransform
	token, ok := c.tokenIn(to.Destination)
	place := mapping.FindStringSubmatchIndex(token)
	if !ok || place == nil {
		return false
	}
	changed := token[:place[2]] + strconv.Itoa(partitions) + token[place[3]:]
	to.Destination = strings.Replace(to.Destination, token, changed, 1)
	stream.SubjectTransform = &to
	return true
}
