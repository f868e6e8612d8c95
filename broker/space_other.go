//go:build !linux && !darwin

package broker

import "math"

// diskSpace is not implemented on this system. It reports unlimited space.
func diskSpace(string) (free, all int64, err error) { return math.MaxInt64, math.MaxInt64, nil }
