package jsstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
)

// A record is the state of a job as it is stored: a version, the status, the
// number of retries, the priority, two times and the timeout, each of a fixed
// size, and the claim's token. Version 2, which only jobs have that were called or
// replayed, has the number of attempts, the time in microseconds and the status of the
// last one, and the replay's ID with its length before the token. The job's ID is in the subject, and its revision
// is the record's sequence.
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

// parseJobSubject reads the job from the last two tokens of a record's subject.
func parseJobSubject(subject string) (domain.JobID, error) {
	rest, seqToken, ok := cutLast(subject)
	if ok {
		_, consumerToken, _ := cutLast(rest)
		seq, err1 := strconv.ParseUint(seqToken, 10, 64)
		consumer, err2 := strconv.ParseUint(consumerToken, 10, 32)
		if err1 == nil && err2 == nil {
			return domain.JobID{Seq: seq, Consumer: uint32(consumer)}, nil
		}
	}
	return domain.JobID{}, fmt.Errorf("%w: subject %q", errRecord, subject)
}

func cutLast(subject string) (before, after string, found bool) {
	i := strings.LastIndexByte(subject, '.')
	if i < 0 {
		return "", subject, false
	}
	return subject[:i], subject[i+1:], true
}
