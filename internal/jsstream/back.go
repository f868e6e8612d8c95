package jsstream

import "slices"

// Back visits what a stream has from a sequence down to another, the newest first, until visit returns a sequence to go on at, or enough is true of
// the number that was visited. next is the sequence to go on at; 0: all was visited.
//
// The server reads forwards only, so Back reads ranges of sequences, at first of width. They get longer if a stream has gaps, or few messages that
// count. Cut says that a range has more than one step may read: then it gets shorter.
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
