package backup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
)

// manifestName is the file that Save writes last. A folder without it has no complete backup.
const manifestName = "backup.json"

type manifest struct {
	Format    int
	CreatedAt time.Time
	Streams   []entry
}

type entry struct {
	Stream, File, SHA256 string
	Bytes                int64
}

// Save stores copies of streams in the folder dir. It creates dir; an existing folder must be empty. Save calls fetch for each stream, in the given
// order, and closes the returned reader. If Save fails, the backup is incomplete, and [Load] refuses it.
func Save(ctx context.Context, dir string, streams []string, fetch func(ctx context.Context, stream string) (io.ReadCloser, error)) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return cmp.Or(err, fmt.Errorf("folder %s is not empty: name another", dir))
	}
	for _, stream := range streams {
		if err := checkName(stream); err != nil {
			return err
		}
	}
	m := manifest{Format: Format, CreatedAt: time.Now().UTC()}
	for _, stream := range streams {
		body, err := fetch(ctx, stream)
		if err != nil {
			return err
		}
		e := entry{Stream: stream, File: stream + ".copy"}
		e.Bytes, e.SHA256, err = saveFile(filepath.Join(dir, e.File), body)
		if err := errors.Join(err, body.Close()); err != nil {
			return fmt.Errorf("copy stream %s: %w", stream, err)
		}
		m.Streams = append(m.Streams, e)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, manifestName)
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return errors.Join(syncPath(path), syncPath(dir))
}

// checkName refuses a stream name, received from a server, that leads out of the backup's folder.
func checkName(stream string) error {
	if filepath.Base(stream) != stream || !filepath.IsLocal(stream) {
		return fmt.Errorf("the broker names a stream %q, which cannot be the name of a file in the folder of the backup: check what answers at the URL",
			stream)
	}
	return nil
}

// saveFile writes a copy and checks that it is complete.
func saveFile(path string, from io.Reader) (size int64, sum string, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return 0, "", err
	}
	hash := sha256.New()
	err = Check(io.TeeReader(from, io.MultiWriter(f, hash)))
	size, seekErr := f.Seek(0, io.SeekCurrent)
	return size, hex.EncodeToString(hash.Sum(nil)), errors.Join(err, seekErr, f.Sync(), f.Close())
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Load restores the streams of the backup in the folder dir. It fails if the server already has one of them, or if a copy is damaged.
func Load(ctx context.Context, dir string, nc *nats.Conn) error {
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return fmt.Errorf("%s has no complete backup: %w", dir, err)
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, manifestName), err)
	}
	if m.Format < 1 || m.Format > Format {
		return fmt.Errorf("the backup has format %d, and this program knows those up to %d: use a later one", m.Format, Format)
	}
	for _, e := range m.Streams {
		if err := check(dir, e); err != nil {
			return err
		}
	}
	for _, e := range m.Streams {
		f, err := os.Open(filepath.Join(dir, filepath.Base(e.File)))
		if err != nil {
			return err
		}
		if err := errors.Join(Read(ctx, nc, e.Stream, f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

func check(dir string, e entry) error {
	f, err := os.Open(filepath.Join(dir, filepath.Base(e.File)))
	if err != nil {
		return err
	}
	hash := sha256.New()
	n, err := io.Copy(hash, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); n != e.Bytes || sum != e.SHA256 {
		return fmt.Errorf("%s has %d bytes with the SHA-256 %s, and the backup had %d with %s: it is damaged", f.Name(), n, sum, e.Bytes, e.SHA256)
	}
	return nil
}
