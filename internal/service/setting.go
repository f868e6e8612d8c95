package service

import (
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
	// Ignored settings are accepted for the sake of existing files, and have no default.
	Ignored bool
	// Set reads the value into a configuration. Its error need not name the key.
	Set func(c *C, value string) error

	flag, env string
}

// Flag is the setting's name on the command line, without the dashes.
func (s Setting[C]) Flag() string { return s.flag }

// Env is the setting's name in the environment.
func (s Setting[C]) Env() string { return s.env }

// Apply sets the value in a configuration. The error names the key.
func (s Setting[C]) Apply(c *C, value string) error {
	if err := s.Set(c, value); err != nil {
		return fmt.Errorf("[%s] %s: %w", s.Section, s.Key, err)
	}
	return nil
}

// Text is a setting that can be anything.
func Text[C any](section, key, def, help string, field func(*C) *string) Setting[C] {
	return Setting[C]{Section: section, Key: key, Default: def, Help: help, Set: func(c *C, value string) error {
		*field(c) = value
		return nil
	}}
}

// Number is a whole number from least to most.
func Number[C any](section, key, def string, least, most int, help string, field func(*C) *int) Setting[C] {
	return Setting[C]{Section: section, Key: key, Default: def, Help: help, Set: func(c *C, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q is not a whole number from %d to %d", value, least, most)
		}
		*field(c) = n
		return nil
	}}
}

// Boolean is true or false.
func Boolean[C any](section, key, def, help string, field func(*C) *bool) Setting[C] {
	return Setting[C]{Section: section, Key: key, Default: def, Help: help, Set: func(c *C, value string) error {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		*field(c) = b
		return nil
	}}
}

// Choice is one of some words, which its help names.
func Choice[C any](section, key, def string, of []string, help string, field func(*C) *string) Setting[C] {
	return Setting[C]{Section: section, Key: key, Default: def, Help: help + ": " + strings.Join(of, ", "), Set: func(c *C, value string) error {
		if !slices.Contains(of, value) {
			return fmt.Errorf("%q is not one of %s", value, strings.Join(of, ", "))
		}
		*field(c) = value
		return nil
	}}
}

// Century is the longest duration that can be set.
const Century = 100 * 365 * 24 * time.Hour

// Duration is a number of units from least to most, which may have a fraction.
func Duration[C any](section, key, def string, unit, least, most time.Duration, help string, field func(*C) *time.Duration) Setting[C] {
	return Setting[C]{Section: section, Key: key, Default: def, Help: help, Set: func(c *C, value string) error {
		d, err := ParseDuration(value, unit, least, most)
		if err != nil {
			return err
		}
		*field(c) = d
		return nil
	}}
}

// ParseDuration reads a number of units, which may have a fraction.
func ParseDuration(value string, unit, least, most time.Duration) (time.Duration, error) {
	n, err := strconv.ParseFloat(value, 64)
	// Compared as numbers: a duration would overflow. NaN is neither.
	if length := n * float64(unit); err == nil && length >= float64(least) && length <= float64(most) {
		return time.Duration(length), nil
	}
	end := "100 years"
	if most != Century {
		end = format(most, unit)
	}
	return 0, fmt.Errorf("%q is not a number of %s from %s to %s", value, unitNames[unit], format(least, unit), end)
}

func format(d, unit time.Duration) string {
	return strconv.FormatFloat(math.Round(float64(d)/float64(unit)*1e9)/1e9, 'f', -1, 64)
}

var unitNames = map[time.Duration]string{time.Second: "seconds", time.Minute: "minutes", 24 * time.Hour: "days"}

// ParseSeconds reads a list of numbers of seconds.
func ParseSeconds(list string) ([]time.Duration, error) {
	var all []time.Duration
	for _, part := range SplitList(list) {
		d, err := ParseDuration(part, time.Second, 0, Century)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// SplitList reads words with commas between them. Empty ones do not count.
func SplitList(value string) []string {
	var list []string
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}
