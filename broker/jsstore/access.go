package jsstore

import (
	"context"
	"strings"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/internal/streams"
)

const accessPrefix = "t."

func accessKey(channel, id string) string {
	return accessPrefix + streams.EncodeToken(channel) + "." + streams.EncodeToken(id)
}

func (s stored) access(revision uint64) broker.AccessToken {
	return broker.AccessToken{Stakeholder: s.stakeholder(revision), Channel: s.Channel, Role: s.Role}
}

func (r *registry) access(channel, id string) func() (broker.AccessToken, bool) {
	return func() (broker.AccessToken, bool) { t, ok := r.accesses[channel][id]; return t, ok }
}

// takeAccess is called with r.mu held.
func (r *registry) takeAccess(k string, revision uint64, s *stored) {
	if s == nil {
		for channel, tokens := range r.accesses {
			for id := range tokens {
				if accessKey(channel, id) == k {
					delete(tokens, id)
				}
			}
		}
		return
	}
	if r.accesses[s.Channel] == nil {
		r.accesses[s.Channel] = map[string]broker.AccessToken{}
	}
	r.accesses[s.Channel][s.ID] = s.access(revision)
}

// RefreshAccess implements broker.Directory.
func (s *directory) RefreshAccess(ctx context.Context, channel, id string) (broker.AccessToken, bool) {
	return refresh(ctx, s.base, accessKey(channel, id), s.reg.access(channel, id))
}

// SaveAccess implements broker.Registrar.
func (s *directory) SaveAccess(ctx context.Context, t broker.AccessToken) (broker.AccessToken, error) {
	value := storedStakeholder(stamp(t.Stakeholder))
	value.Channel, value.Role = t.Channel, t.Role
	revision, err := s.save(ctx, accessKey(t.Channel, t.ID), value, t.Revision)
	return value.access(revision), err
}

// DeleteAccess implements broker.Registrar.
func (s *directory) DeleteAccess(ctx context.Context, t broker.AccessToken) error {
	if err := s.registryWrites.Failure(); err != nil {
		return err
	}
	if err := s.reg.remove(ctx, accessKey(t.Channel, t.ID), t.Revision); err != nil {
		return err
	}
	return s.registryWrites.Durable(ctx)
}

// Accesses implements broker.Directory.
func (s *directory) Accesses(channel string) []broker.AccessToken {
	s.reg.mu.RLock()
	defer s.reg.mu.RUnlock()
	items := make([]broker.AccessToken, 0, len(s.reg.accesses[channel]))
	for _, t := range s.reg.accesses[channel] {
		items = append(items, t)
	}
	return sortedByNumber(items, func(t broker.AccessToken) uint32 { return t.Number })
}

// isAccess tells whether a key is of an access token.
func isAccess(k string) bool { return strings.HasPrefix(k, accessPrefix) }
