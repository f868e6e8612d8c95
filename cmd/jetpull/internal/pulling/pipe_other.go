//go:build !linux

package pulling

import "io"

// BoundPipe does nothing here.
func BoundPipe(io.Writer) {}
