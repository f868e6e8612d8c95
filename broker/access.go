package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Role is what an access token of a channel is good for. Each role includes the ones before it.
type Role int

// The roles.
const (
	RoleNone    Role = iota
	RoleRead         // read what is in the channel, without tokens
	RolePublish      // and broadcast, in the name of any producer
	RoleManage       // and change the channel, its consumers and its access tokens
)

var roleNames = [...]string{RoleNone: "none", RoleRead: "read", RolePublish: "publish", RoleManage: "manage"}

// String is the role as the HTTP interface spells it.
func (r Role) String() string { return roleNames[r] }

// ParseRole is the inverse of [Role.String].
func ParseRole(name string) (Role, error) {
	for r := RoleRead; r <= RoleManage; r++ {
		if roleNames[r] == name {
			return r, nil
		}
	}
	return RoleNone, fmt.Errorf("role %q is not known: use read, publish or manage", name)
}

// AccessToken lets whoever has it do something in one channel. Its token is stored as a hash.
type AccessToken struct {
	Stakeholder
	Channel string
	Role    Role
}

// PutAccess makes or changes an access token, of which the hash is stored.
func (b *Broker) PutAccess(ctx context.Context, t AccessToken) (AccessToken, error) {
	t.Token = HashToken(t.Token)
	return b.store.SaveAccess(ctx, t)
}

// DeleteAccess removes an access token.
func (b *Broker) DeleteAccess(ctx context.Context, t AccessToken) error {
	return b.store.DeleteAccess(ctx, t)
}

const hashPrefix = "sha256:"

// HashToken is a token as it is stored where nobody has to read it again. Tokens are random, or should be: there is no salt.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// Hashed tells whether a stored token is a hash.
func Hashed(stored string) bool {
	rest, ok := strings.CutPrefix(stored, hashPrefix)
	sum, err := hex.DecodeString(rest)
	return ok && err == nil && len(sum) == sha256.Size
}

// TokenMatches tells whether a token is the stored one, hashed or not.
func TokenMatches(stored, token string) bool {
	if Hashed(stored) {
		return token != "" && SameToken(stored, HashToken(token))
	}
	return SameToken(stored, token)
}

// CheckToken refuses a token that could be taken for a hash.
func CheckToken(token string) error {
	if Hashed(token) {
		return fmt.Errorf("it has the form of a hash, %s and 64 hexadecimal digits: choose another", hashPrefix)
	}
	return nil
}

// RoleOf is the highest role that a token has in a channel.
func (b *Broker) RoleOf(channel, token string) Role {
	best := RoleNone
	if token == "" {
		return best
	}
	for _, t := range b.store.Accesses(channel) {
		if t.Role > best && TokenMatches(t.Token, token) {
			best = t.Role
		}
	}
	return best
}

// keptToken is a token as it is to be stored in place of an old one: that one as it is, if it is the same.
func (b *Broker) keptToken(old, token string) string {
	switch {
	case TokenMatches(old, token) && (Hashed(old) || !b.cfg.Admin.HashTokens):
		return old
	case b.cfg.Admin.HashTokens && !Hashed(token):
		return HashToken(token)
	}
	return token
}

// hashTokens replaces tokens of producers and channels that were stored plain, if they are to be hashed. Whoever changes one
// at the same time has it hashed too.
func (b *Broker) hashTokens(ctx context.Context) error {
	if !b.cfg.Admin.HashTokens {
		return nil
	}
	for _, p := range b.store.Producers() {
		if Hashed(p.Token) {
			continue
		}
		err := insist(ctx, func(ctx context.Context) error { _, err := b.PutProducer(ctx, p); return err })
		if err := seeded("producer", p.ID, err); err != nil {
			return err
		}
	}
	for _, c := range b.store.Channels() {
		if Hashed(c.Token) {
			continue
		}
		err := insist(ctx, func(ctx context.Context) error { _, err := b.PutChannel(ctx, c); return err })
		if err := seeded("channel", c.ID, err); err != nil {
			return err
		}
	}
	return nil
}
