package partition

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Of returns the partition of a key, from 0 to partitions-1, as the server's partition function computes it from the same
// text. For several tokens the server hashes them one after the other, without the dots. It is 0 where partitions is less than 1.
func Of(key string, partitions int) int {
	if partitions < 1 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(partitions)) //nolint:gosec // partitions is at most 1,024 in a Set, and never below 1
}

// Transform returns the SubjectTransform of a stream that adds the partition of the first wildcard of source, before it:
// with 64 partitions, "orders.*" becomes "orders.{{partition(64,1)}}.{{wildcard(1)}}". A source without a wildcard
// is returned as its own destination, which [Open] refuses because it has no partition.
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
