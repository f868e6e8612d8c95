//go:build !unix

package child

import "time"

// OwnCPU returns 0, because there is no getrusage on this system.
func OwnCPU() time.Duration { return 0 }
