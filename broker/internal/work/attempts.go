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
	// attemptBody and attemptHeader bound what is kept of an answer, in bytes.
	attemptBody   = 4 << 10
	attemptHeader = 4 << 10
	// maskReach is read beyond that, so that a secret is masked whole which the bound would cut.
	maskReach = 256
	mask      = "…"
)

// secretNames are parts of the names of headers whose values are not kept.
var secretNames = []string{"auth", "cookie", "key", "password", "secret", "session", "signature", "token"}

// masked is an attempt as it may be shown: bounded, and without what the consumer or its receiver keep secret.
func (a ended) masked(c domain.Consumer) domain.Attempt {
	var pairs []string
	secrets := append(strings.Fields(c.SigningSecret), c.Token)
	for _, secret := range secrets {
		if secret != "" {
			pairs = append(pairs, secret, mask)
		}
	}
	hide := strings.NewReplacer(pairs...).Replace
	a.Error = strings.ToValidUTF8(hide(a.Error), "\uFFFD")
	body := hide(string(a.Body))
	if len(a.Body) >= attemptBody+maskReach {
		body = withoutPart(body, secrets)
	}
	a.Body = cut([]byte(body), attemptBody)
	header, room := map[string]string{}, attemptHeader
	for _, name := range slices.Sorted(maps.Keys(a.answer)) {
		value := strings.ToValidUTF8(hide(strings.Join(a.answer[name], ", ")), "\uFFFD")
		if secretName(name) {
			value = mask
		}
		if room -= len(name) + len(value); room >= 0 {
			header[name] = value
		}
	}
	a.Header = header
	return a.Attempt
}

// withoutPart takes the front of a secret off the end of a text that was cut: what is masked before it can bring it into the
// bound.
func withoutPart(text string, secrets []string) string {
	for _, secret := range secrets {
		for n := min(len(secret)-1, len(text)); n > 0; n-- {
			if strings.HasSuffix(text, secret[:n]) {
				text = text[:len(text)-n]
				break
			}
		}
	}
	return text
}

// cut bounds a text, and does not end it within a character.
func cut(b []byte, limit int) []byte {
	if len(b) <= limit {
		return b
	}
	b = b[:limit]
	for range utf8.UTFMax - 1 {
		if r, size := utf8.DecodeLastRune(b); r != utf8.RuneError || size != 1 {
			break
		}
		b = b[:len(b)-1]
	}
	return b
}

func secretName(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretNames, func(part string) bool { return strings.Contains(name, part) })
}

// AttemptsOf returns up to limit attempts at a job, the last one first, that come after one with a number, or from the
// last one if that is 0.
func (x *Jobs) AttemptsOf(ctx context.Context, id domain.JobID, after, limit int) ([]domain.Attempt, error) {
	j, err := x.RefreshJob(ctx, id)
	if err != nil {
		return nil, err
	}
	number := j.Attempts
	if after > 0 {
		number = min(number, after-1)
	}
	if number == 1 && j.Attempts == 1 && j.Status == domain.Delivered {
		// What is stored, if anything, is of a callback whose outcome was never recorded.
		return []domain.Attempt{lastAttempt(j)}, nil
	}
	attempts := []domain.Attempt{}
	for ; number > 0 && len(attempts) < limit; number-- {
		a, err := x.records.AttemptAt(ctx, id, number)
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

// lastAttempt is what the record of a job has of the last attempt at it.
func lastAttempt(j domain.Job) domain.Attempt {
	a := domain.Attempt{Number: j.Attempts, StartedAt: j.ChangedAt.Add(-j.Took), Duration: j.Took, StatusCode: j.Code}
	if j.Status != domain.Delivered {
		a.Error = failed(j.Code)
	}
	return a
}

// failed says why an attempt is no success, as far as the answer's status does.
func failed(code int) string {
	if code == 0 {
		return "no answer"
	}
	return fmt.Sprintf("answered with status %d", code)
}
