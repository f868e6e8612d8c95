//go:build !linux && !darwin

package broker

import "math"

// diskSpace is not implemented on this system: the space counts as unlimited.
func diskSpace(string) (free, all int64, err error) { return math.MaxInt64, math.MaxInt64, nil }
