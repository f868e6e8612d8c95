package jsstore

import (
	"context"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/registry"
)

func (s stored) access(revision uint64) domain.AccessToken {
	return domain.AccessToken{Stakeholder: s.stakeholder(revision), Channel: s.Channel, Role: s.Role}
}

func storedAccess(t domain.AccessToken) stored {
	s := storedStakeholder(t.Stakeholder)
	s.Channel, s.Role = t.Channel, t.Role
	return s
}

// RefreshAccess implements domain.Directory.
func (s *directory) RefreshAccess(ctx context.Context, channel, id string) (domain.AccessToken, error) {
	return refresh(ctx, s.reg.accesses, registry.ID{Group: channel, Name: id})
}

// SaveAccess implements domain.Registrar.
func (s *directory) SaveAccess(ctx context.Context, t domain.AccessToken) (domain.AccessToken, error) {
	t.Stakeholder = stamp(t.Stakeholder)
	revision, err := save(ctx, s, s.reg.accesses, registry.ID{Group: t.Channel, Name: t.ID}, t, t.Revision)
	t.Stakeholder = t.At(revision)
	return t, err
}

// DeleteAccess implements domain.Registrar.
func (s *directory) DeleteAccess(ctx context.Context, t domain.AccessToken) error {
	if err := s.registryWrites.Failure(); err != nil {
		return err
	}
	if err := s.reg.accesses.Delete(ctx, registry.ID{Group: t.Channel, Name: t.ID}, t.Revision, 0); err != nil {
		return err
	}
	return s.registryWrites.Durable(ctx)
}

// Accesses implements domain.Directory.
func (s *directory) Accesses(channel string) []domain.AccessToken {
	return sortedByNumber(s.reg.accesses.In(channel), func(t domain.AccessToken) uint32 { return t.Number })
}
