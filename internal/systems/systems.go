// Package systems names the streams and buckets of broker, relay and partition, and recognizes them. They contain tokens, signing secrets and the
// state of the systems, so other parts neither show their payloads nor publish to them.
package systems

import (
	"slices"
	"strings"
)

// The ends of the names of the broker's streams and of its bucket. Its setting [nats] name is what they begin with.
const (
	BrokerMessages = "_messages"
	BrokerJobs     = "_jobs"
	BrokerAttempts = "_attempts"
	BrokerTicks    = "_ticks"
	BrokerRegistry = "_registry"
)

// The relay's streams and buckets. Their names begin with its setting [nats] name and an underscore, their subjects with that setting and a dot.
const (
	RelayFromSender   = "from_sender"
	RelayToReceiver   = "to_receiver"
	RelayFromReceiver = "pending_from_receiver"
	RelayToSender     = "to_sender"
	RelayFailed       = "failed_messages"

	RelayRecords = "messages"
	RelayConfig  = "receiver_config"
	RelayState   = "state"
)

// PartitionBucket begins the names of the buckets of package partition.
const PartitionBucket = "partition-"

// streams are the ends of the streams' names, and of one of the subjects of each.
var streams = []struct{ system, name, subject string }{
	{"broker", BrokerMessages, ".m.>"},
	{"broker", BrokerJobs, ".j.>"},
	{"broker", BrokerAttempts, ".a.>"},
	{"broker", BrokerTicks, ".t"},
	{"relay", "_" + RelayFromSender, "." + RelayFromSender + ".>"},
	{"relay", "_" + RelayToReceiver, "." + RelayToReceiver + ".>"},
	{"relay", "_" + RelayFromReceiver, "." + RelayFromReceiver + ".>"},
	{"relay", "_" + RelayToSender, "." + RelayToSender + ".>"},
	{"relay", "_" + RelayFailed, "." + RelayFailed + ".>"},
}

// buckets are the ends of the buckets' names.
var buckets = []struct{ system, name string }{
	{"broker", BrokerRegistry}, {"relay", "_" + RelayConfig}, {"relay", "_" + RelayState}, {"relay", "_" + RelayRecords},
}

// OfStream returns the system that a stream with such subjects belongs to, or "". A bucket is recognized by its name alone, so one of another
// program with such a name counts too.
func OfStream(name string, subjects []string) (system string) {
	if bucket, ok := strings.CutPrefix(name, "KV_"); ok {
		return ofBucket(bucket)
	}
	for _, s := range streams {
		if first, ok := strings.CutSuffix(name, s.name); ok && slices.Contains(subjects, first+s.subject) {
			return s.system
		}
	}
	return ""
}

// OfSubject returns the system whose bucket has a subject, or "". A mirror of a bucket has another name, and the same subjects.
func OfSubject(subject string) (system string) {
	if key, ok := strings.CutPrefix(subject, "$KV."); ok {
		bucket, _, _ := strings.Cut(key, ".")
		return ofBucket(bucket)
	}
	return ""
}

func ofBucket(bucket string) string {
	if strings.HasPrefix(bucket, PartitionBucket) {
		return "partition"
	}
	for _, b := range buckets {
		if strings.HasSuffix(bucket, b.name) {
			return b.system
		}
	}
	return ""
}
