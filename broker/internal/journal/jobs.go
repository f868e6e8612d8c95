package journal

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
)

// messageWait limits how long a request for a job waits for this node to read the job's stored message.
const messageWait = 5 * time.Second

// jobs stores the states of jobs and their attempts. The index holds them in memory.
type jobs struct {
	*base
	messages *messages
}

// Job returns a job from the index. If another node has just stored the job's message, Job waits for it.
func (s *jobs) Job(ctx context.Context, id domain.JobID) (domain.Job, error) {
	reached := s.messagesSeen.Reached() // before the lookup, because the message may be read between the two
	j, ok := s.Index.Lookup(id)
	if !ok && id.Seq > reached {
		if err := s.awaitMessage(ctx, id); err != nil {
			return j, err
		}
		j, ok = s.Index.Lookup(id)
	}
	if !ok {
		return j, fmt.Errorf("%w: job %s", domain.ErrNotFound, id)
	}
	return j, nil
}

// awaitMessage waits until this node has read the message of a job that it does not know yet. It does not wait if the message is not stored.
func (s *jobs) awaitMessage(ctx context.Context, id domain.JobID) error {
	_, err := s.reader.At(ctx, s.messageStream, id.Seq)
	if err == nil {
		wait, cancel := context.WithTimeout(ctx, messageWait)
		defer cancel()
		err = s.messagesSeen.Wait(wait, id.Seq)
	}
	if err == nil || errors.Is(err, domain.ErrNotFound) {
		return nil
	}
	return fmt.Errorf("%w: job %s, its message was not read here yet: %w", domain.ErrUnavailable, id, err)
}

// PutJob writes a record only after its message is on disk. Otherwise only the record might survive a power failure. The sequence would be assigned
// to another message, whose job would seem to be done.
func (s *jobs) PutJob(ctx context.Context, job domain.Job) (domain.Job, error) {
	if err := s.messageWrites.DurableAt(ctx, job.ID.Seq); err != nil {
		return job, err
	}
	if now, ok := s.Index.Lookup(job.ID); ok && now.Status.Settled() && !job.Status.Settled() {
		done, err := s.messages.revive(ctx, job.ID)
		if err != nil {
			return job, err
		}
		defer done()
	}
	subject := s.cfg.jobSubject(job.ID.Consumer, strconv.FormatUint(job.ID.Seq, 10))
	seq, err := s.jobWrites.Commit(ctx, &nats.Msg{Subject: subject, Data: encodeRecord(job)}, job.Revision)
	if errors.Is(err, domain.ErrConflict) {
		// The caller needs the stored state for its next decision.
		if _, refreshErr := s.readRecord(ctx, job.ID); refreshErr != nil {
			return job, errors.Join(err, refreshErr)
		}
	}
	if err != nil {
		return job, err
	}
	job.Revision = seq
	raise(&s.recorded, seq)
	s.Index.PutRecord(job)
	if job.Status == domain.Inflight {
		// If a power failure undoes a claim, the job is done again, like any inflight job.
		return job, nil
	}
	return job, s.jobWrites.DurableAt(ctx, job.Revision)
}

// Refresh returns a settled state only after it is on disk. If no other process writes, the index equals the store except for writes in progress,
// whose callers have no answer yet either. In this case, Refresh reads only the fields of a settled job that the index lacks. For a removed job, it
// returns [domain.ErrNotFound].
func (s *jobs) Refresh(ctx context.Context, id domain.JobID) (domain.Job, error) {
	for ctx.Err() == nil {
		var record domain.Job
		if known, ok := s.Index.Lookup(id); s.cfg.Shared || ok && known.Status.Settled() {
			var err error
			if record, err = s.readRecord(ctx, id); err != nil {
				return domain.Job{}, err
			}
		}
		j, err := s.Job(ctx, id)
		if err != nil || j.Revision == 0 || j.Status == domain.Inflight {
			return j, err
		}
		if j.Status.Settled() {
			if record.Revision < j.Revision {
				continue // the job was settled after its record was read
			}
			j = record
		}
		// Another caller may have written the record and still wait for the sync. An answer based on the record must wait too.
		err = s.jobWrites.DurableAt(ctx, j.Revision)
		if err == nil && j.Status == domain.Removed {
			err = fmt.Errorf("%w: job %s", domain.ErrNotFound, id)
		}
		return j, err
	}
	return domain.Job{}, context.Cause(ctx)
}

// readRecord reads the stored record of a job into the index. It returns a zero job if there is none. If there was one before, the message is gone,
// or the record is lost.
func (s *jobs) readRecord(ctx context.Context, id domain.JobID) (domain.Job, error) {
	raw, err := s.Last(ctx, s.jobStream, s.cfg.jobSubject(id.Consumer, strconv.FormatUint(id.Seq, 10)))
	if errors.Is(err, domain.ErrNotFound) {
		known, ok := s.Index.Lookup(id)
		consumer, there := s.Index.Consumer(id.Consumer)
		if !ok || known.Revision == 0 || !there {
			return domain.Job{}, nil
		}
		if err := s.messages.forgetGone(ctx, id.Seq, domain.SubjectToken(consumer.Channel)); err != nil {
			return domain.Job{}, err
		}
		return s.restoreRecord(ctx, id)
	}
	if err != nil {
		return domain.Job{}, err
	}
	j, err := decodeRecord(id, raw.Sequence, raw.Data)
	if err == nil {
		s.Index.PutRecord(j)
	}
	return j, err
}

// restoreRecord writes the record of a job from the index, if the message still exists, because the store was set back to an older state. Otherwise
// no later record could replace the lost one. It cannot restore fields of settled jobs that the index lacks.
func (s *jobs) restoreRecord(ctx context.Context, id domain.JobID) (domain.Job, error) {
	j, ok := s.Index.Lookup(id)
	if !ok || j.Revision == 0 {
		return domain.Job{}, nil
	}
	subject := s.cfg.jobSubject(id.Consumer, strconv.FormatUint(id.Seq, 10))
	seq, err := s.jobWrites.Commit(ctx, &nats.Msg{Subject: subject, Data: encodeRecord(j)}, 0)
	if errors.Is(err, domain.ErrConflict) {
		return domain.Job{}, nil // another record exists already
	}
	if err != nil {
		return domain.Job{}, err
	}
	j.Revision = seq
	s.Index.PutRecord(j)
	return j, nil
}

// Complete reads the fields of push consumers' settled jobs that the index lacks. For other jobs, the index has all fields that are shown. Jobs whose
// records are gone or cannot be decoded stay unchanged. Records that cannot be decoded were logged when they were read.
func (s *jobs) Complete(ctx context.Context, jobs []domain.Job) error {
	var settled []*domain.Job
	for i, j := range jobs {
		if c, ok := s.Index.Consumer(j.ID.Consumer); ok && c.Type == domain.Push && j.Status.Settled() {
			settled = append(settled, &jobs[i])
		}
	}
	return atOnce(settled, func(j *domain.Job) error {
		record, err := s.readRecord(ctx, j.ID)
		if record.Revision > 0 {
			*j = record
		}
		if errors.Is(err, errRecord) {
			return nil
		}
		return err
	})
}

// A record is the stored state of a job: a version, the status, the number of retries, the priority, two times and the timeout, each of a fixed size,
// and then the token of the claim. Version 2 is for jobs with callbacks or replays. Before the token, it has the number of attempts, the duration in
// microseconds and the status of the last one, and the length and ID of the replay. The job's ID is in the subject. The sequence of the record is the
// job's revision.
const (
	recordVersion   = 1
	attemptsVersion = 2
	recordSize      = 1 + 2 + 4 + 4 + 8 + 8 + 4
	attemptsSize    = recordSize + 2 + 4 + 2 + 1
)

var errRecord = errors.New("not a record of a job")

func encodeRecord(j domain.Job) []byte {
	b := make([]byte, 0, attemptsSize+len(j.Replay)+len(j.Claim))
	version := byte(recordVersion)
	if j.Attempts > 0 || j.Replay != "" {
		version = attemptsVersion
	}
	b = append(b, version)
	b = binary.BigEndian.AppendUint16(b, uint16(j.Status))
	b = binary.BigEndian.AppendUint32(b, uint32(j.Retries))
	b = binary.BigEndian.AppendUint32(b, uint32(j.Priority))
	b = binary.BigEndian.AppendUint64(b, uint64(jobindex.UnixNano(j.ChangedAt)))
	b = binary.BigEndian.AppendUint64(b, uint64(jobindex.UnixNano(j.Due)))
	b = binary.BigEndian.AppendUint32(b, uint32(j.IncrementalTimeout/time.Second))
	if version == attemptsVersion {
		b = binary.BigEndian.AppendUint16(b, uint16(min(j.Attempts, math.MaxUint16)))
		b = binary.BigEndian.AppendUint32(b, uint32(min(j.Took.Microseconds(), math.MaxUint32)))
		b = binary.BigEndian.AppendUint16(b, uint16(j.Code))
		b = append(append(b, byte(len(j.Replay))), j.Replay...)
	}
	return append(b, j.Claim...)
}

func decodeRecord(id domain.JobID, revision uint64, b []byte) (domain.Job, error) {
	if len(b) < recordSize || b[0] != recordVersion && b[0] != attemptsVersion {
		return domain.Job{}, fmt.Errorf("%w: %d bytes for job %s", errRecord, len(b), id)
	}
	status := domain.JobStatus(binary.BigEndian.Uint16(b[1:]))
	if status < domain.Queued || status > domain.Removed {
		return domain.Job{}, fmt.Errorf("%w: status %d for job %s", errRecord, status, id)
	}
	j := domain.Job{
		ID:                 id,
		Status:             status,
		Retries:            int(binary.BigEndian.Uint32(b[3:])),
		Priority:           int(binary.BigEndian.Uint32(b[7:])),
		ChangedAt:          jobindex.FromUnixNano(int64(binary.BigEndian.Uint64(b[11:]))),
		Due:                jobindex.FromUnixNano(int64(binary.BigEndian.Uint64(b[19:]))),
		IncrementalTimeout: time.Duration(binary.BigEndian.Uint32(b[27:])) * time.Second,
		Revision:           revision,
	}
	rest := b[recordSize:]
	if b[0] == attemptsVersion {
		if len(b) < attemptsSize || len(b) < attemptsSize+int(b[attemptsSize-1]) {
			return domain.Job{}, fmt.Errorf("%w: %d bytes for job %s", errRecord, len(b), id)
		}
		if j.Attempts = int(binary.BigEndian.Uint16(rest)); j.Attempts > 0 {
			j.Took = time.Duration(binary.BigEndian.Uint32(rest[2:])) * time.Microsecond
			j.Code = int(binary.BigEndian.Uint16(rest[6:]))
		}
		rest = b[attemptsSize:]
		j.Replay, rest = string(rest[:b[attemptsSize-1]]), rest[b[attemptsSize-1]:]
	}
	j.Claim = string(rest)
	return j, nil
}

// parseJobSubject returns the job that the last two tokens of a record's subject identify.
func parseJobSubject(subject string) (domain.JobID, error) {
	tokens := strings.Split(subject, ".")
	if n := len(tokens); n > 2 {
		seq, err1 := strconv.ParseUint(tokens[n-1], 10, 64)
		consumer, err2 := strconv.ParseUint(tokens[n-2], 10, 32)
		if err1 == nil && err2 == nil {
			return domain.JobID{Seq: seq, Consumer: uint32(consumer)}, nil
		}
	}
	return domain.JobID{}, fmt.Errorf("%w: subject %q", errRecord, subject)
}

func (s *jobs) seeRecord(msg *nats.Msg, meta *nats.MsgMetadata) {
	id, err := parseJobSubject(msg.Subject)
	var j domain.Job
	if err == nil {
		j, err = decodeRecord(id, meta.Sequence.Stream, msg.Data)
	}
	if err != nil {
		s.log.Warn("record that cannot be read ignored", "subject", msg.Subject, "error", err)
		return
	}
	s.noteSequence(id.Seq)
	// A process that is killed while it prunes leaves records without messages. A backup during pruning can contain such records too.
	s.Index.SeeRecord(j, s.messagesSeen.Reached())
}

// attemptSubject returns a subject for numbers or wildcards.
func (c Config) attemptSubject(seq, consumer, number any) string {
	return fmt.Sprintf("%s.a.%v.%v.%v", c.Name, seq, consumer, number)
}

// KeepAttempt waits until the message is on disk, because its sequence could be assigned to another message. It does not wait for the attempt itself.
func (s *jobs) KeepAttempt(ctx context.Context, id domain.JobID, a domain.Attempt) error {
	if err := s.messageWrites.DurableAt(ctx, id.Seq); err != nil {
		return err
	}
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode attempt %d of job %s: %w", a.Number, id, err)
	}
	_, err = s.attemptWrites.send(ctx, &nats.Msg{Subject: s.cfg.attemptSubject(id.Seq, id.Consumer, a.Number), Data: data})
	return err
}

// AttemptAt returns a stored attempt. If its record cannot be decoded, the attempt's Error says so, so that the other attempts can be shown.
func (s *jobs) AttemptAt(ctx context.Context, id domain.JobID, number int) (domain.Attempt, error) {
	var a domain.Attempt
	raw, err := s.Last(ctx, s.attemptStream, s.cfg.attemptSubject(id.Seq, id.Consumer, number))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(raw.Data, &a); err != nil {
		return domain.Attempt{Number: number, Error: fmt.Sprintf("the record of this attempt cannot be decoded: %v", err)}, nil
	}
	return a, nil
}
