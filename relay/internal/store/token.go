package store

import (
	"errors"

	"github.com/jetpull/jetpull/internal/tokens"
	"github.com/jetpull/jetpull/internal/wire"
	"github.com/jetpull/jetpull/relay/internal/machine"
)

// Token encodes an ID as one token of a subject, as [tokens.Subject] does. The empty ID is "=".
func Token(id string) string {
	if id == "" {
		return "="
	}
	return tokens.Subject(id)
}

// ParseToken is the inverse of [Token].
func ParseToken(token string) (string, error) {
	if token == "=" {
		return "", nil
	}
	return tokens.ParseSubject(token)
}

// fits reports whether names can be tokens of one subject. Messages of others may have longer ones: the server ends the connection at such a subject.
func fits(names ...string) bool {
	length := 0
	for _, name := range names {
		length += len(Token(name))
	}
	return length < wire.MaxSubject-256 // the rest is for the other tokens
}

// check refuses a record that the relay has not written.
func check(r *machine.Record) error {
	if !fits(r.Source, r.ID, r.Receiver) || !fits(r.Source, r.ID, r.Sender) {
		return errors.New("the names of the record are too long")
	}
	return r.Check()
}
