package store

import (
	"crypto/sha256"
	"slices"
)

// senderIndex finds senders by what a request shows, however many there are. It is made of all senders at the first request after one
// has changed.
type senderIndex struct {
	changes  uint64                         // how many it knows of
	byPrefix map[string][]string            // names, ascending
	byToken  map[[sha256.Size]byte][]string // the same; hashes, so that the time of a search says nothing of a token
	longest  int                            // prefix, in bytes
}

// newSenderIndex is the index of senders that are sorted by name. Those that were deleted are not in it.
func newSenderIndex(all []Sender) *senderIndex {
	x := &senderIndex{byPrefix: map[string][]string{}, byToken: map[[sha256.Size]byte][]string{}}
	for _, s := range all {
		if s.Deleted {
			continue
		}
		for _, prefix := range s.Sources {
			if names := x.byPrefix[prefix]; !slices.Contains(names[max(0, len(names)-1):], s.Name) { // once, if it is given twice
				x.byPrefix[prefix] = append(names, s.Name)
			}
			x.longest = max(x.longest, len(prefix))
		}
		if s.Token != "" {
			hash := sha256.Sum256([]byte(s.Token))
			x.byToken[hash] = append(x.byToken[hash], s.Name)
		}
	}
	return x
}

// owners are the senders that have the longest prefix of a source: several may have the same.
func (x *senderIndex) owners(source string) []string {
	for n := min(len(source), x.longest); n >= 0; n-- {
		if names := x.byPrefix[source[:n]]; len(names) > 0 {
			return names
		}
	}
	return nil
}

// withToken is which of the owners of a source has a token, the first by name; empty: none.
func (x *senderIndex) withToken(source, token string) string {
	owners := x.owners(source)
	for _, name := range x.byToken[sha256.Sum256([]byte(token))] {
		if _, found := slices.BinarySearch(owners, name); found {
			return name
		}
	}
	return ""
}

func (s *Registry) senderIndex() *senderIndex {
	x, changes := s.index.Load(), s.changes.Load()
	if x == nil || x.changes != changes {
		x = newSenderIndex(s.Senders.All())
		x.changes = changes
		s.index.Store(x)
	}
	return x
}

// OwnerOf returns the sender that has the longest prefix of a source, the first by name; empty: nobody has one.
func (s *Registry) OwnerOf(source string) string {
	if owners := s.senderIndex().owners(source); len(owners) > 0 {
		return owners[0]
	}
	return ""
}

// OwnerByToken returns the sender that has the longest prefix of a source, and a token; empty: there is none.
func (s *Registry) OwnerByToken(source, token string) string {
	return s.senderIndex().withToken(source, token)
}

// KnowsToken tells whether a token is that of a sender.
func (s *Registry) KnowsToken(token string) bool {
	return len(s.senderIndex().byToken[sha256.Sum256([]byte(token))]) > 0
}
