//go:build !linux

package pulling

import "io"

// BoundPipe does nothing on this system.
func BoundPipe(io.Writer) {}
