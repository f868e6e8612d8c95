package jobindex

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// The lock is free when it is said that there is a job to take, and the job is there.
func TestIndexNotifiesWithoutItsLock(t *testing.T) {
	var x *Index
	var taken []uint64
	x = New(func(consumer uint32) {
		if !x.mu.TryLock() {
			t.Error("ready is called under the lock")
			return
		}
		x.mu.Unlock()
		for _, j := range x.Take(consumer, 10) {
			taken = append(taken, j.ID.Seq)
		}
	})
	push := domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Type: domain.Push}
	x.PutConsumer("ch", push)
	x.AddMessage("ch", Entry{Seq: 1, At: time.Now().UnixNano()}, "")
	require.Equal(t, []uint64{1}, taken)
	x.GiveBack(domain.Job{ID: domain.JobID{Seq: 1, Consumer: 1}})
	require.Equal(t, []uint64{1, 1}, taken)
	x.PutRecord(domain.Job{ID: domain.JobID{Seq: 1, Consumer: 1}, Status: domain.Queued, Revision: 7})
	require.Equal(t, []uint64{1, 1, 1}, taken)
}

// A worker is notified of the next job, once.
func TestQueuedSignal(t *testing.T) {
	x := New(func(uint32) {})
	x.PutConsumer("ch", domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Type: domain.Pull})
	signal := x.QueuedSignal(1)
	x.AddMessage("ch", Entry{Seq: 1, At: time.Now().UnixNano()}, "")
	<-signal
	require.NotEqual(t, signal, x.QueuedSignal(1))
	signal = x.QueuedSignal(1)
	x.RemoveConsumer(1)
	<-signal
}
