package service

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is one key of the configuration C.
type Setting[C any] struct {
	Section string
	Key     string
	Default string
	Help    string
	// Ignored settings are accepted for compatibility with existing files. They have no default.
	Ignored bool
	// Set parses value and sets it in a configuration. Its error need not name the key.
	Set func(c *C, value string) error

	flag, env string
	warn      func(c *C, warning string) // nil: values above the limit are errors
}

// Flag returns the setting's name on the command line, without the dashes.
func (s Setting[C]) Flag() string { return s.flag }

// Env returns the setting's name in the environment.
func (s Setting[C]) Env() string { return s.env }

// Apply sets the value in a configuration. The error names the key.
func (s Setting[C]) Apply(c *C, value string) error {
	name, err := "["+s.Section+"] "+s.Key, s.Set(c, value)
	for s.warn != nil {
		large, ok := errors.AsType[*LargeError](err)
		if !ok {
			break
		}
		s.warn(c, fmt.Sprintf("%s: %s is more than %s and counts as that", name, large.Value, large.Most))
		value = strings.Replace(value, large.Value, large.Most, 1)
		err = s.Set(c, value)
	}
	return Named(name, err)
}

// LargeError reports that a value, or an element of a list, is above its limit.
type LargeError struct {
	Value, Most string
	text        string
}

// Error names the value and its limits.
func (e *LargeError) Error() string { return e.text }

// setting returns a setting whose value parse parses.
func setting[C, V any](section, key, def, help string, parse func(value string) (V, error), field func(*C) *V) Setting[C] {
	return Setting[C]{Section: section, Key: key, Default: def, Help: help, Set: func(c *C, value string) error {
		parsed, err := parse(value)
		if err == nil {
			*field(c) = parsed
		}
		return err
	}}
}

// Text returns a setting that accepts any text.
func Text[C any](section, key, def, help string, field func(*C) *string) Setting[C] {
	return setting(section, key, def, help, func(value string) (string, error) { return value, nil }, field)
}

// Number returns a setting for a whole number from least to most.
func Number[C any](section, key, def string, least, most int, help string, field func(*C) *int) Setting[C] {
	return setting(section, key, def, help, func(value string) (int, error) {
		n, err := strconv.Atoi(value)
		switch text := fmt.Sprintf("%q is not a whole number from %d to %d", value, least, most); {
		case n > most: // for a number that is too large, Atoi returns the largest one
			return 0, &LargeError{value, strconv.Itoa(most), text}
		case err != nil || n < least:
			return 0, errors.New(text)
		}
		return n, nil
	}, field)
}

// Boolean returns a setting that is true or false.
func Boolean[C any](section, key, def, help string, field func(*C) *bool) Setting[C] {
	return setting(section, key, def, help, func(value string) (bool, error) {
		b, err := strconv.ParseBool(value)
		if err != nil {
			err = fmt.Errorf("%q is neither true nor false", value)
		}
		return b, err
	}, field)
}

// Choice returns a setting that is one of several words, which its help lists.
func Choice[C any](section, key, def string, of []string, help string, field func(*C) *string) Setting[C] {
	words := strings.Join(of, ", ")
	return setting(section, key, def, help+": "+words, func(value string) (string, error) {
		if !slices.Contains(of, value) {
			return "", fmt.Errorf("%q is not one of %s", value, words)
		}
		return value, nil
	}, field)
}

// Century is the maximum duration of a setting.
const Century = 100 * 365 * 24 * time.Hour

// Duration returns a setting for a number of units, which may have a fraction, from least to most.
func Duration[C any](section, key, def string, unit, least, most time.Duration, help string, field func(*C) *time.Duration) Setting[C] {
	return setting(section, key, def, help, func(value string) (time.Duration, error) {
		return ParseDuration(value, unit, least, most)
	}, field)
}

// ParseDuration parses a number of units, which may have a fraction.
func ParseDuration(value string, unit, least, most time.Duration) (time.Duration, error) {
	n, err := strconv.ParseFloat(value, 64)
	// Compare numbers, because durations could overflow. NaN fails both comparisons. A number that is too large is infinite.
	length := n * float64(unit)
	if err == nil && length >= float64(least) && length <= float64(most) {
		return time.Duration(length), nil
	}
	end := "100 years"
	if most != Century {
		end = format(most, unit)
	}
	text := fmt.Sprintf("%q is not a number of %s from %s to %s", value, unitNames[unit], format(least, unit), end)
	if length > float64(most) {
		return 0, &LargeError{value, format(most, unit), text}
	}
	return 0, errors.New(text)
}

func format(d, unit time.Duration) string {
	return strconv.FormatFloat(math.Round(float64(d)/float64(unit)*1e9)/1e9, 'f', -1, 64)
}

var unitNames = map[time.Duration]string{time.Second: "seconds", time.Minute: "minutes", 24 * time.Hour: "days"}

// Seconds returns a setting for a list of numbers of seconds, with least or more elements.
func Seconds[C any](section, key, def string, least int, help string, field func(*C) *[]time.Duration) Setting[C] {
	return setting(section, key, def, help, func(value string) (all []time.Duration, err error) {
		for _, part := range SplitList(value) {
			d, err := ParseDuration(part, time.Second, 0, Century)
			if err != nil {
				return nil, err
			}
			all = append(all, d)
		}
		if len(all) < least {
			return nil, fmt.Errorf("%q is not a list of seconds, such as 5,30,60", value)
		}
		return all, nil
	}, field)
}

// List returns a setting for a comma-separated list of words that check accepts.
func List[C any](section, key, def, help string, check func([]string) error, field func(*C) *[]string) Setting[C] {
	return setting(section, key, def, help, func(value string) ([]string, error) {
		list := SplitList(value)
		return list, check(list)
	}, field)
}

// largestSize is the maximum number of bytes of a setting, an exbibyte.
const largestSize = 1 << 60

var byteUnits = []struct {
	name  string
	bytes float64
}{{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}

// Bytes returns a setting for a number of bytes, such as 20GB.
func Bytes[C any](section, key, def, help string, field func(*C) *int64) Setting[C] {
	return setting(section, key, def, help, func(value string) (int64, error) {
		for _, unit := range byteUnits {
			number, ok := strings.CutSuffix(strings.ToUpper(value), unit.name)
			if !ok {
				continue
			}
			n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			switch size := n * unit.bytes; {
			case size > largestSize:
				return 0, &LargeError{value, strconv.Itoa(largestSize), fmt.Sprintf("%q is more than %d bytes", value, largestSize)}
			case err == nil && size >= 0:
				return int64(size), nil
			}
			break
		}
		return 0, fmt.Errorf("%q is not a number of bytes, such as 500MB or 20GB", value)
	}, field)
}

// SplitList splits a comma-separated list. It skips empty elements.
func SplitList(value string) []string {
	var list []string
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}
