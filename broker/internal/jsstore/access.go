package jsstore

import (
	"context"
	"strings"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/streams"
)

const accessPrefix = "t."

func accessKey(channel, id string) string {
	return accessPrefix + streams.EncodeToken(channel) + "." + streams.EncodeToken(id)
}

func (s stored) access(revision uint64) domain.AccessToken {
	return domain.AccessToken{Stakeholder: s.stakeholder(revision), Channel: s.Channel, Role: s.Role}
}

func (r *registry) access(channel, id string) func() (domain.AccessToken, bool) {
	return func() (domain.AccessToken, bool) { t, ok := r.accesses[channel][id]; return t, ok }
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
		r.accesses[s.Channel] = map[string]domain.AccessToken{}
	}
	r.accesses[s.Channel][s.ID] = s.access(revision)
}

// RefreshAccess implements domain.Directory.
func (s *directory) RefreshAccess(ctx context.Context, channel, id string) (domain.AccessToken, error) {
	return refresh(ctx, s.base, accessKey(channel, id), s.reg.access(channel, id))
}

// SaveAccess implements domain.Registrar.
func (s *directory) SaveAccess(ctx context.Context, t domain.AccessToken) (domain.AccessToken, error) {
	value := storedStakeholder(stamp(t.Stakeholder))
	value.Channel, value.Role = t.Channel, t.Role
	revision, err := s.save(ctx, accessKey(t.Channel, t.ID), value, t.Revision)
	return value.access(revision), err
}

// DeleteAccess implements domain.Registrar.
func (s *directory) DeleteAccess(ctx context.Context, t domain.AccessToken) error {
	if err := s.registryWrites.Failure(); err != nil {
		return err
	}
	if err := s.reg.remove(ctx, accessKey(t.Channel, t.ID), t.Revision); err != nil {
		return err
	}
	return s.registryWrites.Durable(ctx)
}

// Accesses implements domain.Directory.
func (s *directory) Accesses(channel string) []domain.AccessToken {
	s.reg.mu.RLock()
	defer s.reg.mu.RUnlock()
	items := make([]domain.AccessToken, 0, len(s.reg.accesses[channel]))
	for _, t := range s.reg.accesses[channel] {
		items = append(items, t)
	}
	return sortedByNumber(items, func(t domain.AccessToken) uint32 { return t.Number })
}

// isAccess tells whether a key is of an access token.
func isAccess(k string) bool { return strings.HasPrefix(k, accessPrefix) }
