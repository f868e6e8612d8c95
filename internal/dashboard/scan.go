package dashboard

import (
	"fmt"
	"strconv"
	"strings"
)

// kind is what a token of an expression is.
type kind int

const (
	end kind = iota
	name
	number // a duration, too
	text   // in quotes
	sign   // punctuation, a byte
)

type token struct {
	kind kind
	text string
}

// is reports whether the token is one of these signs.
func (t token) is(signs string) bool { return t.kind == sign && strings.Contains(signs, t.text) }

// scanner cuts an expression of PromQL, or a line of a scrape, into tokens.
type scanner struct {
	rest string
	next token
}

func newScanner(s string) (*scanner, error) {
	sc := &scanner{rest: s}
	_, err := sc.take()
	return sc, err
}

// take returns the next token and reads the one after it.
func (s *scanner) take() (token, error) {
	was := s.next
	s.rest = strings.TrimLeft(s.rest, " \t\r\n")
	if s.rest == "" {
		s.next = token{}
		return was, nil
	}
	n, k := 1, sign
	switch c := s.rest[0]; {
	case isLetter(c):
		n, k = s.span(func(c byte) bool { return isLetter(c) || isDigit(c) }), name
	case isDigit(c):
		n, k = s.span(func(c byte) bool { return isLetter(c) || isDigit(c) || c == '.' }), number
	case c == '$':
		// Grafana puts a number or a duration there.
		n, k = 1+(&scanner{rest: s.rest[1:]}).span(func(c byte) bool { return isLetter(c) || isDigit(c) || c == '{' || c == '}' }), number
	case c == '"' || c == '\'' || c == '`':
		value, length, err := unquote(s.rest)
		if err != nil {
			return was, err
		}
		s.next, s.rest = token{text, value}, s.rest[length:]
		return was, nil
	}
	s.next, s.rest = token{k, s.rest[:n]}, s.rest[n:]
	return was, nil
}

// span is how many bytes at the beginning belong to a token.
func (s *scanner) span(belongs func(byte) bool) int {
	n := 0
	for n < len(s.rest) && belongs(s.rest[n]) {
		n++
	}
	return n
}

func isLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == ':'
}
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// unquote reads the string that s begins with, and says how long it is with its quotes.
func unquote(s string) (value string, length int, err error) {
	quote := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote != '`':
			i++
		case s[i] == quote:
			quoted := s[:i+1]
			if quote == '\'' {
				quoted = `"` + strings.ReplaceAll(strings.ReplaceAll(s[1:i], `\'`, `'`), `"`, `\"`) + `"`
			}
			value, err := strconv.Unquote(quoted)
			if err != nil {
				return "", 0, fmt.Errorf("%s is not a string: %w", s[:i+1], err)
			}
			return value, i + 1, nil
		}
	}
	return "", 0, fmt.Errorf("%s has no end", s)
}

// labels reads {name="value", ...}.
func (s *scanner) labels() ([]matcher, error) {
	if _, err := s.take(); err != nil {
		return nil, err
	}
	var found []matcher
	for !s.next.is("}") {
		label, err := s.expect(name, "a label")
		if err != nil {
			return nil, err
		}
		m := matcher{label: label}
		for s.next.is("=!~") {
			t, err := s.take()
			if err != nil {
				return nil, err
			}
			m.operator += t.text
		}
		if m.value, err = s.expect(text, "the value of "+label); err != nil {
			return nil, err
		}
		switch m.operator {
		case "=", "!=", "=~", "!~":
		default:
			return nil, fmt.Errorf("%s%s: there is no operator %s", label, m.operator, m.operator)
		}
		found = append(found, m)
		if s.next.is(",") {
			if _, err := s.take(); err != nil {
				return nil, err
			}
		} else if !s.next.is("}") {
			return nil, fmt.Errorf("%q after %s=%q, where a comma or } belongs", s.next.text, label, m.value)
		}
	}
	_, err := s.take()
	return found, err
}

// matcher is label="value" with one of the four operators.
type matcher struct{ label, operator, value string }

func (s *scanner) expect(k kind, what string) (string, error) {
	if s.next.kind != k {
		return "", fmt.Errorf("%q where %s belongs", s.next.text, what)
	}
	t, err := s.take()
	return t.text, err
}
