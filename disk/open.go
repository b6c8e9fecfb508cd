package disk

import (
	"time"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
)

// opening is one Open.
type opening struct{ t *instance }

// keepDistrusted has the list of distrusted spaces lie beside the database.
func (o opening) keepDistrusted(set *folders.Set) error {
	garbled, err := o.t.o.Distrusted.Keep(set.Meta)
	if garbled != nil {
		o.t.log.Error().Err(garbled).Msg("not all distrusted spaces are known")
	}
	return err
}

// openAll claims the folders and opens what lies there. Where kinds is shorter than
// the paths the system's folders are used.
func (o opening) openAll(kinds []blockio.Folder) error {
	t := o.t
	set, dirs, missing, err := folders.Claim(t.o.Paths, t.o.Meta)
	t.set, t.missing = set, missing
	if err != nil {
		return err
	}
	o.logDamage(set, missing)
	if err := o.keepDistrusted(set); err != nil {
		return err
	}
	if err := o.makeVolumes(dirs, kinds); err != nil {
		return err
	}
	if t.segments, err = openSegments(t.volumes, t.o.SegmentBytes, set.Epoch); err != nil {
		return err
	}
	if err := o.orderSurvey(set.Meta); err != nil {
		return err
	}
	if err := o.openStore(); err != nil {
		return err
	}
	t.share = newShare(&t.o, t.segments)
	t.space = newSpace(t)
	t.commits = metadata.NewCommitter(t.db, t.share, set.Epoch)
	t.deleting.commits = t.commits
	t.deletionLog = newDeletionLog(set.Meta, t.o.IOTimeout)
	t.seal = database.NewSealer(set.Secret)
	if t.rebuilds, err = set.Meta.Exists(metadata.RebuildName); err != nil {
		return err
	}
	if t.unclean, err = o.beginUnclean(); err != nil {
		return err
	}
	empty, err := t.db.IsEmpty()
	if err != nil {
		return err
	}
	if empty {
		t.db.Succeeded() // nothing to read that could end the process
	}
	t.scan.active.Store(!empty || t.rebuilds || len(t.segments.all()) > 0)
	return maintenance{t}.lookAll()
}

// lastTimeout is how long an opening waits for the database's process of a daemon that was
// killed. Half of IOTimeout is the most: a start waits no longer than that for the tier.
const lastTimeout = 4 * time.Second

// orderSurvey orders one where nothing says that the database has all it had. The order
// comes before the opening, which believes the database from then on.
func (o opening) orderSurvey(meta *folders.Folder) error {
	if len(o.t.segments.all()) == 0 {
		return nil
	}
	if witnessed, err := metadata.Witnessed(meta); err != nil || witnessed {
		return err
	}
	return meta.Replace(metadata.RebuildName, nil)
}

// openStore opens the database; a lock is its pulse unless there is another.
func (o opening) openStore() (err error) {
	t := o.t
	if t.pulse == nil {
		t.pulse = t.set.Locks[0]
	}
	t.db, err = metadata.Open(metadata.Options{
		Meta: t.set.Meta, Pulse: t.pulse, ReserveBytes: t.o.MetaReserveBytes,
		Database: t.o.Database, Free: t.o.free,
		Patience: patience * t.o.IOTimeout, Await: min(lastTimeout, t.o.IOTimeout/2), Log: t.log,
	})
	return err
}

// logDamage logs the damaged files of the folders, and the missing folders.
func (o opening) logDamage(set *folders.Set, missing []string) {
	t := o.t
	for _, path := range set.Damaged {
		t.log.Error().Str("path", path).
			Msg("a file of the disk tier was gone or did not hold what it should; it is written anew, and what was there lies beside it as .damaged")
	}
	for _, dir := range missing {
		t.log.Error().Str("path", dir).
			Msg("a path of the disk tier is missing; what it has is forgotten. If its disk was replaced, give the path another name")
	}
}
