package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/tier"
)

// saveEvery is how often what the policies have learned is written down. A
// crash costs no more than that.
const saveEvery = 10 * time.Minute

// learned is where what the policy of one tier has learned is kept.
type learned struct {
	tier tier.Bounded // its policy may learn
	path string       // of the file
}

// learned lists the tiers whose policies may learn. The folder of a disk tier that is not
// open is not the daemon's: another disk may be missing there, or a read never end.
func (d *Daemon) learned() (list []learned) {
	if d.disk == nil || d.disk.Off() {
		return nil
	}
	dir := d.cfg.Disk.MetaPath()
	return []learned{{d.cpu, filepath.Join(dir, "learned.cpu")}, {d.disk, filepath.Join(dir, "learned.disk")}}
}

// loadLearned gives the policies what an earlier process has learned. What cannot
// be used costs some hits, and no more.
func (d *Daemon) loadLearned() {
	for _, l := range d.learned() {
		data, err := config.ReadRegular(l.path, 256<<10) // tenure's has 90 KB at most
		if err == nil {
			err = l.tier.Ledger().Planning().Load(data)
		}
		switch {
		case err == nil:
			d.log.Info().Str("file", l.path).Msg("what the policy had learned is known again")
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ledger.ErrNoLearner):
			d.log.Warn().Err(err).Str("file", l.path).Msg("what the policy had learned cannot be used; it learns anew")
		}
	}
}

// runLearned writes down what the policies learn, until ctx ends and once
// more then.
func (d *Daemon) runLearned(ctx context.Context) error {
	for base.Sleep(ctx, saveEvery) == nil {
		d.saveLearned()
	}
	d.saveLearned()
	return nil
}

func (d *Daemon) saveLearned() {
	for _, l := range d.learned() {
		if err := l.save(); err != nil {
			d.log.Warn().Err(err).Msg("what the policy has learned is not saved")
		}
	}
}

// save replaces the file, or leaves the old one.
func (l *learned) save() error {
	data, err := l.tier.Ledger().Planning().Save()
	if err != nil || data == nil {
		return err
	}
	// One name, so that a crash leaves one file, which the next save replaces; and
	// nothing is written through a link of that name.
	_ = os.Remove(l.path + ".new")
	f, err := os.OpenFile(l.path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), l.path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("save %s: %w", l.path, err)
	}
	return nil
}

// newSample makes the recorder of what clients ask for.
func newSample(d *Daemon) *explain.Recorder {
	return explain.NewRecorder(explain.RecorderOptions{
		Tiers: func() explain.Tiers { return tiersOfSample(d) },
		Hits:  func() (asked, hit uint64) { return hitsOf(d.server.Stats()) },
	})
}

// hitsOf are the tokens that were asked for, and those of them that were in DRAM or on disk.
func hitsOf(st server.Stats) (asked, hit uint64) {
	return st.AskedTokens, st.HitTokens[tier.CPU] + st.HitTokens[tier.Disk]
}

// tiersOfSample are the tiers as they are now.
func tiersOfSample(d *Daemon) explain.Tiers {
	c := d.reloads.running()
	out := explain.Tiers{Write: c.Write.Mode, UnsafeAge: c.Write.UnsafeAge.Seconds()}
	st := d.store.Operator.Stats().Tiers
	out.DRAM = tierOfSample(d, tier.CPU, st[tier.CPU], meanChunk)
	if disk, ok := st[tier.Disk]; ok {
		mean := int64(meanChunk)
		if out.DRAM.Chunks > 0 {
			mean = out.DRAM.Bytes / out.DRAM.Chunks
		}
		out.Disk = tierOfSample(d, tier.Disk, disk, mean)
	}
	byCompute := slices.ContainsFunc(c.Spaces, func(s config.Space) bool { return s.PrefillDepth > 0 })
	out.DRAM.ByCompute, out.Disk.ByCompute = byCompute, byCompute
	return out
}

// tierOfSample is one of them. Where it is empty, a chunk is taken to have mean bytes.
func tierOfSample(d *Daemon, p tier.Place, st tier.Stats, mean int64) explain.Tier {
	t := explain.Tier{Bytes: st.CapacityBytes}
	t.Policy, _ = d.store.Operator.PolicyOf(p)
	if st.Entries > 0 {
		mean = max(1, st.UsedBytes/st.Entries)
	}
	t.Chunks = max(1, int64(float64(st.CapacityBytes)*(tier.HighWatermark+tier.LowWatermark)/2)/mean)
	return t
}
