package main

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
)

// indexSize is the room at the start of every payload that holds the message's index in its stream. The index lives in
// the payload, not in the ack subject, so that checking a message costs every contender the same few nanoseconds and
// no allocation, whatever its client makes of metadata.
const indexSize = 8

// receipts records which messages of a round arrived and how often. Safe for concurrent use.
type receipts struct {
	n          int
	words      []atomic.Uint64
	got        atomic.Int64
	duplicates atomic.Int64
	foreign    atomic.Int64
	done       chan struct{}
}

func newReceipts(n int) *receipts {
	return &receipts{n: n, words: make([]atomic.Uint64, (n+63)/64), done: make(chan struct{})}
}

// mark takes one delivered payload; the delivery that completes the set closes done.
func (r *receipts) mark(payload []byte) {
	if len(payload) < indexSize {
		r.foreign.Add(1)
		return
	}
	index := binary.BigEndian.Uint64(payload)
	if index >= uint64(r.n) {
		r.foreign.Add(1)
		return
	}
	bit := uint64(1) << (index % 64)
	if r.words[index/64].Or(bit)&bit != 0 {
		r.duplicates.Add(1)
		return
	}
	if r.got.Add(1) == int64(r.n) {
		close(r.done)
	}
}

func (r *receipts) calls() int { return int(r.got.Load() + r.duplicates.Load()) }

// check returns an error unless every message of the round was received, exactly once if once is set.
func (r *receipts) check(once bool) error {
	got, dup, foreign := r.got.Load(), r.duplicates.Load(), r.foreign.Load()
	switch {
	case foreign > 0:
		return fmt.Errorf("received %d payloads that are not of this round", foreign)
	case got != int64(r.n):
		return fmt.Errorf("received %d of %d messages", got, r.n)
	case once && dup > 0:
		return fmt.Errorf("received %d of %d messages more than once", dup, r.n)
	}
	return nil
}
