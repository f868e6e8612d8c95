package jobindex

import (
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// settledJob is the compact form of a job that is delivered, dead or removed: 48 bits for its sequence, 48 for its revision, 2 for its state and 62
// for the time of its last change in nanoseconds, which suffice until 2116. The record has the other fields. Most jobs in a store are settled, for as
// long as their messages are retained.
type settledJob [5]uint32

func settle(j domain.Job) settledJob {
	seq, revision, at := j.ID.Seq, j.Revision, uint64(max(0, UnixNano(j.ChangedAt)))
	return settledJob{
		uint32(seq >> 16),
		uint32(seq)<<16 | uint32(revision>>32)&0xffff,
		uint32(revision),
		uint32(j.Status-domain.Delivered)<<30 | uint32(at>>32)&(1<<30-1),
		uint32(at),
	}
}

func (s settledJob) seq() uint64      { return uint64(s[0])<<16 | uint64(s[1])>>16 }
func (s settledJob) revision() uint64 { return uint64(s[1]&0xffff)<<32 | uint64(s[2]) }
func (s settledJob) at() int64        { return int64(s[3]&(1<<30-1))<<32 | int64(s[4]) }

func (s settledJob) status() domain.JobStatus {
	return domain.Delivered + domain.JobStatus(s[3]>>30)
}

func (s settledJob) less(o settledJob) bool { return s.seq() < o.seq() }

// deliveredAt returns when the job was delivered, or zero if it was not.
func (s settledJob) deliveredAt() time.Time {
	if s.status() != domain.Delivered {
		return time.Time{}
	}
	return FromUnixNano(s.at())
}

// job returns s as a job with the fields that the index has.
func (s settledJob) job(consumer uint32) domain.Job {
	return domain.Job{
		ID: domain.JobID{Seq: s.seq(), Consumer: consumer}, Status: s.status(), Revision: s.revision(), ChangedAt: FromUnixNano(s.at()),
	}
}

type settledJobs struct {
	bySeq     orderedSet[settledJob]
	dead      orderedSet[key] // by the time of death
	delivered int
}

func (s *settledJobs) get(seq uint64) (settledJob, bool) {
	return s.bySeq.get(settle(domain.Job{ID: domain.JobID{Seq: seq}, Status: domain.Delivered}))
}

// add adds a job that s does not have.
func (s *settledJobs) add(e settledJob) {
	s.bySeq.insert(e)
	switch e.status() {
	case domain.Dead:
		s.dead.insert(key{e.at(), e.seq()})
	case domain.Delivered:
		s.delivered++
	}
}

// remove removes a job that s has.
func (s *settledJobs) remove(e settledJob) {
	s.bySeq.remove(e)
	switch e.status() {
	case domain.Dead:
		s.dead.remove(key{e.at(), e.seq()})
	case domain.Delivered:
		s.delivered--
	}
}

// SettledFrom checks a part of a consumer's settled jobs, from a sequence, and returns where to continue. It appends the jobs that the replay selects
// and whose records are no later than upTo.
func (x *Index) SettledFrom(consumer uint32, s domain.ReplaySpec, upTo, from uint64, jobs []domain.Job, limit int) (_ []domain.Job, next uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers.of(consumer)
	before, looked := settle(domain.Job{ID: domain.JobID{Seq: from - 1}, Status: domain.Delivered}), 0
	for e := range k.settled.bySeq.ascend(&before) {
		if looked++; looked > finishedPage || len(jobs) == limit {
			return jobs, e.seq()
		}
		m, kept := k.channel.find(e.seq())
		if kept && e.revision() <= upTo && s.Takes(e.status()) && s.TakesTime(time.Unix(0, m.At)) {
			jobs = append(jobs, e.job(consumer))
		}
	}
	return jobs, 0
}

// UnixNano returns a time as it is stored. The zero time is 0.
func UnixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// FromUnixNano is the inverse of [UnixNano].
func FromUnixNano(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
