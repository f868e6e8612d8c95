package partition

import (
	"fmt"
	"os"
	"regexp"

	"github.com/nats-io/nuid"

	"github.com/jetpull/jetpull"
)

// Option is an option of [Set.Consume]. If an option is given twice, the last one applies; options of [With] add up.
type Option func(*options)

type options struct {
	name               string
	onAssign, onRevoke func(partition int, why string)
	consume            []jetpull.Option
}

// Member sets the name of this member, which is unique in the set: 1 to 64 letters, digits, '-' and '_'. The default consists
// of the host's name, the process ID and a random part. A process that restarts with the same name waits until its
// predecessor's key has expired, for up to [Config].TTL. While another member uses the name, Consume returns [ErrMemberInUse].
func Member(name string) Option { return func(o *options) { o.name = name } }

// OnAssign sets a function that is called when this member gets a partition, before the partition's first message is handled.
// why is the reason, for a log. Calls for different partitions can run at the same time. None by default.
func OnAssign(f func(partition int, why string)) Option { return func(o *options) { o.onAssign = f } }

// OnRevoke sets a function that is called when this member loses a partition, after the last handler of the partition has
// returned. Unless the membership was lost, no other member gets the partition before it returns. Calls for different
// partitions can run at the same time. None by default.
func OnRevoke(f func(partition int, why string)) Option { return func(o *options) { o.onRevoke = f } }

// With adds options for the Consume of each partition: Concurrency, OrderedBy, RetryDelays, MaxAttempts, DeadLetter,
// DrainTimeout and others. Each applies to one partition: with Concurrency(2), a member runs at most two handlers for each of
// its partitions.
func With(opts ...jetpull.Option) Option {
	return func(o *options) { o.consume = append(o.consume, opts...) }
}

func newOptions(opts []Option) (o options, err error) {
	host, _ := os.Hostname()
	id := nuid.Next()
	o = options{onAssign: func(int, string) {}, onRevoke: func(int, string) {}}
	o.name = fmt.Sprintf("%.30s-%d-%s", regexp.MustCompile(`[^a-zA-Z0-9_-]`).ReplaceAllString(host, "-"), os.Getpid(), id[len(id)-6:])
	for _, f := range opts {
		if f == nil {
			return o, invalid("an Option is nil; use one of the package's options")
		}
		f(&o)
	}
	switch {
	case !validName(o.name):
		return o, invalid("Member %q: use 1 to 64 letters, digits, '-' and '_'", o.name)
	case o.onAssign == nil || o.onRevoke == nil:
		return o, invalid("OnAssign and OnRevoke: the function is nil; leave the option out")
	}
	return o, nil
}
