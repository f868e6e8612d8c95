package domain

import (
	"encoding/binary"
	"fmt"
	"log/slog"

	"github.com/rs/xid"
)

// JobID names a job by what it is made of, so that an ID leads to its message
// and its consumer without an index.
type JobID struct {
	Seq      uint64 // the message's sequence in the store
	Consumer uint32 // the consumer's number
}

// String returns the ID in the form of an xid: 20 characters of base32hex.
func (id JobID) String() string {
	var raw xid.ID
	binary.BigEndian.PutUint64(raw[:8], id.Seq)
	binary.BigEndian.PutUint32(raw[8:], id.Consumer)
	return raw.String()
}

// LogValue has a log name a job as the HTTP interface does.
func (id JobID) LogValue() slog.Value { return slog.StringValue(id.String()) }

// ParseJobID is the inverse of [JobID.String]. An ID that no job can have is an
// error.
func ParseJobID(s string) (JobID, error) {
	raw, err := xid.FromString(s)
	if err != nil {
		return JobID{}, fmt.Errorf("job ID %q is not 20 characters of base32hex", s)
	}
	id := JobID{Seq: binary.BigEndian.Uint64(raw[:8]), Consumer: binary.BigEndian.Uint32(raw[8:])}
	if id.Seq == 0 || id.Consumer == 0 {
		return JobID{}, fmt.Errorf("job ID %q names no message or no consumer", s)
	}
	return id, nil
}

// NewID returns an ID for a message that came without one.
func NewID() string { return xid.New().String() }
