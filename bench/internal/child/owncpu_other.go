//go:build !unix

package child

import "time"

// OwnCPU returns 0: without getrusage there are no figures of CPU time.
func OwnCPU() time.Duration { return 0 }
