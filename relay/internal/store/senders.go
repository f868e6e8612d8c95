package store

import (
	"crypto/sha256"
	"slices"
)

// senderIndex finds senders by prefix and token, however many there are. The first request after a change of a sender builds it.
type senderIndex struct {
	changes  uint64                         // the number of changes that it includes
	byPrefix map[string][]string            // names, ascending
	byToken  map[[sha256.Size]byte][]string // the same; hashes, so that the time of a search reveals nothing about a token
	longest  int                            // prefix, in bytes
}

// newSenderIndex builds the index of senders that are sorted by name. It leaves out deleted ones.
func newSenderIndex(all []Sender) *senderIndex {
	x := &senderIndex{byPrefix: map[string][]string{}, byToken: map[[sha256.Size]byte][]string{}}
	for _, s := range all {
		if s.Deleted {
			continue
		}
		for _, prefix := range s.Sources {
			if names := x.byPrefix[prefix]; !slices.Contains(names[max(0, len(names)-1):], s.Name) { // a sender may list a prefix twice
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

// owners returns the senders with the longest prefix of a source. Several may have the same.
func (x *senderIndex) owners(source string) []string {
	for n := min(len(source), x.longest); n >= 0; n-- {
		if names := x.byPrefix[source[:n]]; len(names) > 0 {
			return names
		}
	}
	return nil
}

// withToken returns the owner of a source that has a token, the first by name, or "".
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

// OwnerOf returns the sender with the longest prefix of a source, the first by name, or "".
func (s *Registry) OwnerOf(source string) string {
	if owners := s.senderIndex().owners(source); len(owners) > 0 {
		return owners[0]
	}
	return ""
}

// OwnerByToken returns the sender with the longest prefix of a source and a token, or "".
func (s *Registry) OwnerByToken(source, token string) string {
	return s.senderIndex().withToken(source, token)
}

// KnowsToken reports whether a sender has the token.
func (s *Registry) KnowsToken(token string) bool {
	return len(s.senderIndex().byToken[sha256.Sum256([]byte(token))]) > 0
}
