package store

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The index finds the same as a search of all senders, after any change or deletion. Senders may share prefixes and tokens.
func TestSenderIndex(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	text := func(n int) string { return strings.Repeat("ab", n)[r.IntN(2):][:r.IntN(n+1)] }
	all := map[string]Sender{}
	for range 5000 {
		s := Sender{Named: Named{Name: fmt.Sprint("s", r.IntN(6)), Deleted: r.IntN(3) == 0}}
		s.Token = fmt.Sprint("t", r.IntN(4))
		for range 1 + r.IntN(3) {
			s.Sources = append(s.Sources, text(4))
		}
		all[s.Name] = s
		var sorted []Sender
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !all[name].Deleted { // as in [Table.All]
				sorted = append(sorted, all[name])
			}
		}
		index := newSenderIndex(sorted)

		source, token := text(6), fmt.Sprint("t", r.IntN(4))
		var owners []string
		longest := -1
		for _, name := range slices.Sorted(maps.Keys(all)) {
			switch n := longestPrefix(all[name], source); {
			case n > longest:
				owners, longest = []string{name}, n
			case n == longest && n >= 0:
				owners = append(owners, name)
			}
		}
		var found []string
		require.Empty(t, index.find(source, func(o owner) bool {
			found = append(found, o.name)
			return false
		}))
		require.Equal(t, owners, slices.Compact(found)) // a sender may list a prefix twice
		with := slices.IndexFunc(owners, func(name string) bool { return all[name].Token == token })
		if with < 0 {
			require.Empty(t, index.find(source, withToken(token)))
		} else {
			require.Equal(t, owners[with], index.find(source, withToken(token)))
		}
		require.Empty(t, index.find(source, withToken("")))
	}
}

func withToken(token string) func(owner) bool {
	hash := sha256.Sum256([]byte(token))
	return func(o owner) bool { return o.token == hash }
}

// longestPrefix returns the length of a sender's longest prefix of a source, or -1.
func longestPrefix(s Sender, source string) int {
	longest := -1
	for _, prefix := range s.Sources {
		if !s.Deleted && strings.HasPrefix(source, prefix) {
			longest = max(longest, len(prefix))
		}
	}
	return longest
}

// Finding the sender of a source takes as long with a thousand senders as with one.
func BenchmarkSenderIndex(b *testing.B) {
	for _, senders := range []int{1, 1000} {
		var all []Sender
		for i := range senders {
			one := SenderConfig{Token: fmt.Sprint("token", i), Sources: []string{fmt.Sprintf("tenant%d-", i)}}
			all = append(all, Sender{Named: Named{Name: fmt.Sprint("tenant", i)}, SenderConfig: one})
		}
		index := newSenderIndex(all)
		b.Run(fmt.Sprint(senders), func(b *testing.B) {
			for b.Loop() {
				if index.find("tenant0-a", withToken("token0")) == "" {
					b.Fatal("not found")
				}
			}
		})
	}
}
