// Package systems names the streams and buckets of broker, relay and partition, and recognizes them. They contain tokens, signing secrets and the
// state of the systems, so other parts neither show their payloads nor publish to them.
package systems

import (
	"slices"
	"strings"
)

// The suffixes of the names of the broker's streams and bucket. The prefix is its setting [nats] name.
const (
	BrokerMessages = "_messages"
	BrokerJobs     = "_jobs"
	BrokerAttempts = "_attempts"
	BrokerTicks    = "_ticks"
	BrokerRegistry = "_registry"
)

// The relay's streams and buckets. Their names have the prefix [nats] name and an underscore, their subjects [nats] name and a dot.
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

// PartitionBucket is the prefix of the names of package partition's buckets.
const PartitionBucket = "partition-"

// streams lists the suffixes of the streams' names, and of one subject of each.
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

// buckets lists the suffixes of the buckets' names.
var buckets = []struct{ system, name string }{
	{"broker", BrokerRegistry}, {"relay", "_" + RelayConfig}, {"relay", "_" + RelayState}, {"relay", "_" + RelayRecords},
}

// OfStream returns the system to which a stream with these subjects belongs, or "". It recognizes a bucket by its name alone, so a bucket of another
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

// OfSubject returns the system whose bucket has a subject, or "". A mirror of a bucket has another name, but the same subjects.
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
