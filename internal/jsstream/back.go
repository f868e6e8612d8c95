package jsstream

import "slices"

// Back visits the messages of a stream from high down to low, newest first. It stops when visit returns a sequence at which to continue, or when
// enough returns true for the number of visited messages. next is the sequence at which to continue, or 0 if all were visited.
//
// The server reads only forwards, so Back reads ranges of sequences, at first of size width. It reads longer ranges if a stream has gaps or few
// matching messages. cut reports that a range has more messages than read may return in one step. Then Back reads a shorter range.
func Back[T any](low, high uint64, width int, read func(low, high uint64) (all []T, cut bool, err error), visit func(T) (next uint64),
	enough func(visited int) bool,
) (next uint64, visited int, err error) {
	longer := uint64(16) // after a range without messages
	for step := uint64(width); high >= low; {
		if enough(visited) {
			return high, visited, nil
		}
		bottom := low
		if high-low >= step {
			bottom = high - step + 1
		}
		all, cut, err := read(bottom, high)
		if err != nil {
			return high, visited, err
		}
		if cut {
			step, longer = max(1, min(step, high-low+1)/16), 1 // what is left of a gap has 16 steps at most
			continue
		}
		for _, one := range slices.Backward(all) {
			visited++
			if next := visit(one); next > 0 {
				return next, visited, nil
			}
		}
		switch high = bottom - 1; {
		case len(all) == 0:
			step *= longer
		case len(all) <= width/2:
			step, longer = step*2, 16 // a longer one would be cut again and again
		default:
			longer = 16
		}
	}
	return 0, visited, nil
}
