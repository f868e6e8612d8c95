//go:build !unix

package measure

import "time"

// processCPU returns 0: without getrusage there are no figures of CPU time.
func processCPU() time.Duration { return 0 }
