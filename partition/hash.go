package partition

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Of returns the partition of a key, from 0 to partitions-1. It computes the same number as the server's partition function. If
// the server hashes several tokens, key is their text without the dots. If partitions is less than 1, Of returns 0.
func Of(key string, partitions int) int {
	if partitions < 1 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(partitions)) //nolint:gosec // partitions is at most 1,024 in a Set, and never below 1
}

// Transform returns the SubjectTransform with which a stream adds a token with the partition before the first wildcard of
// source. The partition is computed from that wildcard. With 64 partitions, "orders.*" becomes
// "orders.{{partition(64,1)}}.{{wildcard(1)}}". A source without a wildcard gets no partition, and [Open] refuses such a
// stream.
func Transform(partitions int, source string) jetstream.SubjectTransformConfig {
	var out []string
	wildcards := 0
	for token := range strings.SplitSeq(source, ".") {
		if token == "*" {
			wildcards++
			token = fmt.Sprintf("{{wildcard(%d)}}", wildcards)
			if wildcards == 1 {
				out = append(out, fmt.Sprintf("{{partition(%d,1)}}", partitions))
			}
		}
		out = append(out, token)
	}
	return jetstream.SubjectTransformConfig{Source: source, Destination: strings.Join(out, ".")}
}
