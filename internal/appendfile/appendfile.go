// Package appendfile appends lines to a file, either all lines of a call or none.
package appendfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// Append appends lines to a file and returns when they are on disk. It creates a missing file with mode. After an error, the file is unchanged. If a
// crash has left part of a line at the end of the file, Append starts with a new line.
func Append(path string, mode os.FileMode, write func(io.Writer) error) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Truncate(size))
		}
	}()
	torn, err := endsInLine(f, size)
	if err != nil {
		return fmt.Errorf("read the end of %s: %w", path, err)
	}
	out := bufio.NewWriter(f)
	if torn {
		_ = out.WriteByte('\n') // at the end, a bufio.Writer returns this error, too
	}
	if err := write(out); err != nil {
		return err
	}
	return errors.Join(out.Flush(), f.Sync())
}

// endsInLine reports whether the last line of a file has no newline.
func endsInLine(f io.ReaderAt, size int64) (bool, error) {
	if size == 0 {
		return false, nil
	}
	last := make([]byte, 1)
	_, err := f.ReadAt(last, size-1)
	return last[0] != '\n', err
}
