package work

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

const (
	// attemptBody and attemptHeader are the maximum sizes of the stored parts of an answer, in bytes.
	attemptBody   = 4 << 10
	attemptHeader = 4 << 10
	// bodyLimit is how many bytes of a body are read. The difference to attemptBody is at least the length of the longest secret.
	bodyLimit = attemptBody + domain.MaxLongText
	mask      = "…"
)

// secretNames lists parts of the names of headers whose values are not stored.
var secretNames = []string{"auth", "cookie", "key", "password", "secret", "session", "signature", "token"}

// secretsOf returns the secrets of a consumer and its receiver, longest first, because one may be a prefix of another.
func secretsOf(c domain.Consumer) []string {
	secrets := slices.AppendSeq(append(strings.Fields(c.SigningSecret), c.Token), maps.Values(c.Headers))
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	return slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
}

// masked returns an attempt for storage and display: limited in size, and without the secrets of the consumer and its receiver.
func (a result) masked(c domain.Consumer) domain.Attempt {
	var pairs []string
	for _, secret := range secretsOf(c) {
		pairs = append(pairs, secret, mask)
	}
	hide := strings.NewReplacer(pairs...).Replace
	a.Error = strings.ToValidUTF8(hide(a.Error), "\uFFFD")
	body, limit := hide(string(a.Body)), attemptBody
	if len(a.Body) >= bodyLimit {
		limit = max(0, min(limit, len(body)-domain.MaxLongText)) // the body may end within a secret, which masking may have moved into the limit
	}
	a.Body = cut([]byte(body), limit)
	header, left := map[string]string{}, attemptHeader
	for _, name := range slices.Sorted(maps.Keys(a.answer)) {
		value := strings.ToValidUTF8(hide(strings.Join(a.answer[name], ", ")), "\uFFFD")
		if secretName(name) {
			value = mask
		}
		if left -= len(name) + len(value); left >= 0 {
			header[name] = value
		}
	}
	a.Header = header
	return a.Attempt
}

// cut truncates b to at most limit bytes, at the end of a character.
func cut(b []byte, limit int) []byte {
	if len(b) <= limit {
		return b
	}
	for end := limit; end > max(0, limit-utf8.UTFMax); end-- {
		if utf8.RuneStart(b[end]) {
			return b[:end]
		}
	}
	return b[:limit]
}

func secretName(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretNames, func(part string) bool { return strings.Contains(name, part) })
}

// AttemptsOf returns up to limit attempts at a job, newest first.
func (x *Jobs) AttemptsOf(ctx context.Context, id domain.JobID, limit int) ([]domain.Attempt, error) {
	j, err := x.Records.Refresh(ctx, id)
	if err != nil {
		return nil, err
	}
	if j.Attempts == 1 && j.Status == domain.Delivered {
		// A stored attempt, if any, belongs to a callback whose outcome was not recorded.
		return []domain.Attempt{lastAttempt(j)}, nil
	}
	attempts := []domain.Attempt{}
	for number := j.Attempts; number > max(0, j.Attempts-limit); number-- {
		a, err := x.Records.AttemptAt(ctx, id, number)
		switch {
		case err == nil:
			attempts = append(attempts, a)
		case !errors.Is(err, domain.ErrNotFound):
			return nil, err
		case number == j.Attempts && j.Status != domain.Inflight:
			attempts = append(attempts, lastAttempt(j))
		}
	}
	return attempts, nil
}

// lastAttempt returns the last attempt, with the fields that a job's record has.
func lastAttempt(j domain.Job) domain.Attempt {
	a := domain.Attempt{Number: j.Attempts, StartedAt: j.ChangedAt.Add(-j.Took), Duration: j.Took, StatusCode: j.Code}
	if j.Status != domain.Delivered {
		a.Error = failed(j.Code)
	}
	return a
}

func failed(code int) string {
	if code == 0 {
		return "no answer"
	}
	return fmt.Sprintf("answered with status %d", code)
}
