package domain

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jetpull/jetpull/internal/tokens"
)

// Role is the set of rights of an access token in its channel. Each role includes the lower ones.
type Role int

// The roles.
const (
	RoleNone    Role = iota
	RoleRead         // read the channel, except tokens
	RolePublish      // also broadcast, in the name of any producer
	RoleManage       // also change the channel, its consumers and its access tokens
)

var roleNames = [...]string{RoleNone: "none", RoleRead: "read", RolePublish: "publish", RoleManage: "manage"}

// String returns the role as the HTTP interface spells it.
func (r Role) String() string { return roleNames[r] }

// ParseRole is the inverse of [Role.String].
func ParseRole(name string) (Role, error) {
	if r := slices.Index(roleNames[:], name); r > 0 {
		return Role(r), nil
	}
	return RoleNone, fmt.Errorf("role %q is not known: use read, publish or manage", name)
}

// AccessToken grants its holder a role in one channel. Its token is stored as a hash.
type AccessToken struct {
	Stakeholder
	Channel string
	Role    Role
}

// HashPrefix is the prefix of the hash of a token.
const HashPrefix = "sha256:"

// HashToken returns the hash of a token for storage. It needs no salt, because tokens are random.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return HashPrefix + hex.EncodeToString(sum[:])
}

// Hashed reports whether a stored token is a hash.
func Hashed(stored string) bool {
	rest, ok := strings.CutPrefix(stored, HashPrefix)
	sum, err := hex.DecodeString(rest)
	return ok && err == nil && len(sum) == sha256.Size && rest == strings.ToLower(rest)
}

// TokenMatches reports whether a token equals the stored one, which may be a hash.
func TokenMatches(stored, token string) bool {
	if Hashed(stored) {
		return token != "" && tokens.Same(stored, HashToken(token))
	}
	return tokens.Same(stored, token)
}

// CheckSent refuses a token, or the ID of a producer, that an HTTP header cannot carry.
func CheckSent(text string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return errors.New("it has a control character, which no HTTP header can carry: leave it out")
	}
	if strings.Trim(text, " \t") != text {
		return errors.New("it begins or ends with a space or tab, which no HTTP header can carry there: leave it out")
	}
	return nil
}

// CheckToken refuses a token that looks like a hash, or that CheckSent refuses.
func CheckToken(token string) error {
	if Hashed(token) {
		return fmt.Errorf("it has the form of a hash, %s and 64 hexadecimal digits: choose another", HashPrefix)
	}
	return CheckSent(token)
}

// NewToken returns a random token of at least 128 bits.
func NewToken() string { return rand.Text() }
