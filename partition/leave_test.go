package partition

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/stored"
)

// The server is down for longer than a lease, and a member must leave meanwhile. Its first write of the record after that fails, because another
// member was faster or the answer is lost. The other member gets the partitions within 300 ms, and does not wait for the TTL.
func TestALeaveAfterARestart(t *testing.T) {
	for name, failure := range map[string]error{"refused": stored.ErrConflict, "unanswered": errSim} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				synctest.Test(t, func(t *testing.T) { leaveAfterARestart(t, seed, failure) })
			}
		})
	}
}

func leaveAfterARestart(t *testing.T, seed uint64, failure error) {
	t.Helper()
	s := newSimulation(t.Context(), seed, "")
	s.reliable = true
	s.add()
	s.add()
	first, second := s.all[0], s.all[1]
	owned := func(m *simMember) (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := s.record()
		for p := range now.Owners {
			if nameOf(now.owner(p)) == m.name {
				n++
			}
		}
		return n
	}
	members := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.record().Members)
	}
	for members() < 2 || owned(first)+owned(second) < len(s.parts) || len(s.parts) > 1 && owned(second) == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() {
		time.Sleep(900 * time.Millisecond)
		s.mu.Lock()
		s.fail = func(p *process, key string) error {
			if p != first.process || key != recordKey {
				return nil
			}
			s.fail = nil
			return failure
		}
		s.mu.Unlock()
		first.stop()
	}()
	s.cut(s.alive, 950*time.Millisecond, func() {
		for _, part := range s.parts {
			part.restart()
		}
	})
	time.Sleep(300 * time.Millisecond)
	require.Equal(t, len(s.parts), owned(second), "seed %d: %s", seed, s.keys[recordKey].Data)
	require.Nil(t, s.fail, "the first write of the record has failed")
	for _, m := range s.all {
		m.stop()
		<-m.left
		require.NoError(t, m.err)
	}
}
