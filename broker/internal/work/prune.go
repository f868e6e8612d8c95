package work

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
	"github.com/jetpull/jetpull/internal/appendfile"
	"github.com/jetpull/jetpull/internal/watch"
)

const (
	// prunePage is how many messages are exported and deleted at a time.
	prunePage = 200
	// pruneFind is how many messages are searched for at a time. Each search passes retained messages, such as those with dead jobs.
	pruneFind = 10_000
)

// Pruner deletes messages that are older than the retention and whose jobs are all settled.
type Pruner struct{ *core }

func (p *Pruner) pruneLoop(ctx context.Context) {
	if p.Rules.Retention == 0 {
		return
	}
	watch.Every(ctx, max(p.Rules.Interval, time.Second), func() {
		n, err := p.PruneFinished(ctx, p.Now())
		switch {
		case err != nil && ctx.Err() == nil:
			p.Log.Warn("pruning stopped, trying again later", "pruned", n, "error", err)
		case n > 0:
			p.Log.Info("finished messages pruned", "pruned", n)
		}
	})
}

// PruneFinished deletes the finished messages of this node's channels that are older than the retention, and returns their number. If a folder for
// exports is configured, it exports them first. If an export fails, it deletes nothing more.
func (p *Pruner) PruneFinished(ctx context.Context, now time.Time) (int, error) {
	if p.Rules.ExportPath != "" { // even if there is nothing to export, so that the log names at once a folder that cannot be created
		if err := os.MkdirAll(p.Rules.ExportPath, 0o750); err != nil {
			return 0, fmt.Errorf("[prune] export-path: %w", err)
		}
	}
	ages := jobindex.Ages{Before: now.Add(-p.Rules.Retention)}
	if p.Rules.DeadRetention > 0 {
		ages.DeadBefore = now.Add(-p.Rules.DeadRetention)
	}
	count := 0
	for ctx.Err() == nil {
		before := count
		found := p.Index.Finished(p.prunes, ages, pruneFind)
		for seqs := range slices.Chunk(found, prunePage) {
			if p.Rules.ExportPath != "" {
				if err := p.export(ctx, seqs, now); err != nil {
					return count, fmt.Errorf("export messages: %w", err)
				}
			}
			deleted, err := p.Messages.Prune(ctx, seqs)
			count += deleted
			if err != nil {
				return count, fmt.Errorf("delete messages: %w", err)
			}
		}
		if len(found) < pruneFind || count == before {
			return count, nil
		}
	}
	return count, context.Cause(ctx)
}

// prunes reports whether this node prunes a channel, given by its token. One node does, so that a message is exported once. The token of a long ID is
// a hash, so the ID is not known here.
func (p *Pruner) prunes(token string) bool { return p.Shards.Owns(p.Shards.Shard(token)) }

// exported is one line of an export. The payload is base64 in JSON.
type exported struct {
	domain.Message
	Jobs []exportedJob
}

type exportedJob struct {
	Consumer        string
	Status          string
	StatusChangedAt time.Time
	Retries         int
}

func (p *Pruner) export(ctx context.Context, seqs []uint64, now time.Time) error {
	messages, err := p.Messages.InOrder(ctx, seqs)
	if err != nil {
		return err
	}
	name := "messages-" + now.UTC().Format(time.DateOnly) + ".jsonl"
	if p.Rules.NodeName != "" {
		name = p.Rules.NodeName + "-" + name
	}
	return appendfile.Append(filepath.Join(p.Rules.ExportPath, name), 0o640, func(w io.Writer) error {
		lines := json.NewEncoder(w)
		for _, m := range messages {
			if err := lines.Encode(p.exported(ctx, m)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *Pruner) exported(ctx context.Context, m domain.Message) exported {
	e := exported{Message: m}
	for _, j := range p.Index.JobsOf(m.Channel, m.Seq) {
		if c, ok := p.Index.Consumer(j.ID.Consumer); ok {
			if complete, err := p.Records.Refresh(ctx, j.ID); err == nil {
				j = complete
			}
			e.Jobs = append(e.Jobs, exportedJob{Consumer: c.ID, Status: j.Status.String(), StatusChangedAt: j.ChangedAt, Retries: j.Retries})
		}
	}
	return e
}
