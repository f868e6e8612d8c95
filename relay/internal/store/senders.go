package store

import (
	"crypto/sha256"
	"slices"
	"sync"
)

// senderIndex finds senders by what a request shows, however many there are. Those that were deleted are not in it.
type senderIndex struct {
	mu       sync.RWMutex
	byPrefix map[string][]string            // names, ascending
	byToken  map[[sha256.Size]byte][]string // the same; hashes, so that the time of a search says nothing of a token
	longest  int                            // prefix, in bytes, that there ever was
}

func newSenderIndex() senderIndex {
	return senderIndex{byPrefix: map[string][]string{}, byToken: map[[sha256.Size]byte][]string{}}
}

// replace takes the place of what a sender was; nil: there was none, or is none.
func (x *senderIndex) replace(was, is *Sender) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if was != nil {
		x.remove(was)
	}
	if is != nil {
		x.add(is)
	}
}

func (x *senderIndex) add(s *Sender) {
	if s.Deleted {
		return
	}
	for _, prefix := range s.Sources {
		insert(x.byPrefix, prefix, s.Name)
		x.longest = max(x.longest, len(prefix))
	}
	if s.Token != "" {
		insert(x.byToken, sha256.Sum256([]byte(s.Token)), s.Name)
	}
}

func (x *senderIndex) remove(s *Sender) {
	for _, prefix := range s.Sources {
		drop(x.byPrefix, prefix, s.Name)
	}
	drop(x.byToken, sha256.Sum256([]byte(s.Token)), s.Name)
}

func insert[K comparable](names map[K][]string, key K, name string) {
	if at, found := slices.BinarySearch(names[key], name); !found {
		names[key] = slices.Insert(names[key], at, name)
	}
}

func drop[K comparable](names map[K][]string, key K, name string) {
	if at, found := slices.BinarySearch(names[key], name); found {
		names[key] = slices.Delete(names[key], at, at+1)
	}
	if len(names[key]) == 0 {
		delete(names, key)
	}
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

// OwnerOf returns the sender that has the longest prefix of a source, the first by name; empty: nobody has one.
func (s *Registry) OwnerOf(source string) string {
	s.index.mu.RLock()
	defer s.index.mu.RUnlock()
	if owners := s.index.owners(source); len(owners) > 0 {
		return owners[0]
	}
	return ""
}

// OwnerByToken returns the sender that has the longest prefix of a source, and a token; empty: there is none.
func (s *Registry) OwnerByToken(source, token string) string {
	s.index.mu.RLock()
	defer s.index.mu.RUnlock()
	return s.index.withToken(source, token)
}

// KnowsToken tells whether a token is that of a sender.
func (s *Registry) KnowsToken(token string) bool {
	s.index.mu.RLock()
	defer s.index.mu.RUnlock()
	return len(s.index.byToken[sha256.Sum256([]byte(token))]) > 0
}
