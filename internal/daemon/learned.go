package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/ledger"
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
			err = l.tier.Ledger().LoadPolicy(data)
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
	data, err := l.tier.Ledger().SavePolicy()
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
