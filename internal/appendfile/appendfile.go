// Package appendfile appends lines to a file, all of a call or none.
package appendfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// Append writes lines to the end of a file, which it creates with mode if it does not exist, and returns when they are on disk. After an error
// the file is as it was. If a crash has left a part of a line at the end of the file, the lines begin on a line of their own.
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
		_ = out.WriteByte('\n') // a bufio.Writer returns its error at the end, too
	}
	if err := write(out); err != nil {
		return err
	}
	return errors.Join(out.Flush(), f.Sync())
}

// endsInLine reports whether the last line of a file has no end.
func endsInLine(f io.ReaderAt, size int64) (bool, error) {
	if size == 0 {
		return false, nil
	}
	last := make([]byte, 1)
	_, err := f.ReadAt(last, size-1)
	return last[0] != '\n', err
}
