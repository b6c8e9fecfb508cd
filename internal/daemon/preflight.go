package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/remote"
)

// Problems is everything found on this machine that keeps serve from starting.
type Problems []error

func (u Problems) Error() string { return errors.Join(u...).Error() }

// WithoutDisk reports whether serve would start all the same, without the disk
// tier, because all that is wrong is trouble of the disk that may pass.
func (u Problems) WithoutDisk() bool {
	return !slices.ContainsFunc(u, func(err error) bool {
		var fault diskFault
		return !errors.As(err, &fault) || !disk.IsTrouble(err)
	})
}

// diskFault is what the disk tier finds wrong with its folders. Errors of other
// parts may look alike: the folder of a socket that is not there, say.
type diskFault struct{ error }

func (f diskFault) Unwrap() error { return f.error }

// Preflight tries what serve does before it serves, and undoes it. keeper says what a keeper
// holds; its sockets are not in the way.
func Preflight(c *config.Config) (errs Problems, keeper string) {
	kept, keeper := askKeeper(c)
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var held []net.Listener // to the end: two addresses may come to one
	unix := func(key, path string, mode os.FileMode, group string) {
		if own, err := os.Lstat(path); err == nil && kept[labelOf(path, own)] != nil {
			return
		}
		if err := socket.CanListen(path, mode, group); err != nil {
			add(fmt.Errorf("%s: %w", key, err))
		}
	}
	try := func(key, addr string) {
		switch {
		case isSocket(addr):
			unix(key, addr, c.Listen.Mode, c.Listen.Group)
		case kept[labelOfTCP(addr)] == nil:
			l, err := listenTCP(key, addr)
			if err == nil {
				held = append(held, l)
			}
			add(err)
		}
	}
	try("listen.socket", c.Listen.Socket)
	unix("admin.socket", c.AdminSocket(), c.Admin.Mode, c.Admin.Group)
	if c.Admin.Listen != "" {
		try("admin.listen", c.Admin.Listen)
	}
	for _, addr := range c.Listen.RESP {
		try("listen.resp", addr)
	}
	for _, l := range held {
		_ = l.Close()
	}
	_, err := readPassword(c.Listen.RESPPasswordFile)
	add(err)
	if c.Disk.Enabled() {
		if err := disk.Check(diskOptions(&c.Disk, zerolog.Nop())); err != nil {
			add(diskFault{err})
		}
	}
	return errs, keeper
}

// CheckRemote tries the remote tier with everything the daemon needs there, and
// returns what an operator should know of it.
func CheckRemote(ctx context.Context, c *config.S3) (notes []string, err error) {
	r, err := remote.New(remoteOptions(c, zerolog.Nop()))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Check(ctx)
}

// Warnings say what serve would start with, but hardly as it was meant; if here,
// on this machine.
func Warnings(c *config.Config, here bool) (out []string) {
	if names := config.PassedOver(os.Environ()); len(names) > 0 {
		out = append(out, "no settings, and passed over: "+strings.Join(names, ", "))
	}
	if s := &c.Remote.S3; s.Endpoint != "" && !s.Enabled() {
		out = append(out, "remote.s3.endpoint is set, but there is no remote tier without remote.s3.bucket")
	}
	if len(c.Listen.AllowUIDs) > 0 {
		var open []string
		if c.Listen.RESPPasswordFile == "" {
			open = append(open, c.Listen.RESP...)
		}
		for _, addr := range slices.DeleteFunc(open, isSocket) {
			out = append(out, fmt.Sprintf("listen.allow_uids does not bind who connects over TCP, and %s asks for no password; use the path of a socket", addr))
		}
	}
	out = append(out, adminWarnings(c)...)
	out = append(out, depthWarnings(c)...)
	for i, s := range c.Spaces {
		out = append(out, literalWarnings(fmt.Sprintf("spaces[%d].match", i), s.Match)...)
	}
	for i, r := range c.Access {
		out = append(out, literalWarnings(fmt.Sprintf("access[%d].match", i), r.Match)...)
		if own := uint32(os.Getuid()); here && slices.Contains(r.UIDs, own) {
			out = append(out, fmt.Sprintf("access[%d] names user %d, which runs the daemon and may do everything, whatever the rules say; run the daemon as a user of its own", i, own))
		}
	}
	if c.CPU.Keep && len(c.Access) > 0 {
		out = append(out, "cpu.keep: an engine that runs as root could write what others read, whatever the rules of access say; run engines as other users, or set it to false")
	}
	if here {
		out = append(out, memoryWarnings(c)...)
		out = append(out, chunkWarnings(c)...)
		out = append(out, fileWarnings(c, openFiles())...)
		out = append(out, diskWarnings(&c.Disk)...)
	}
	return out
}

// depthWarnings say where prefill_depth changes nothing.
func depthWarnings(c *config.Config) (out []string) {
	for i, s := range c.Spaces {
		if s.PrefillDepth > 0 && c.CPU.Policy != "tenure" && (c.Disk.Policy != "tenure" || !c.Disk.Enabled()) {
			out = append(out, fmt.Sprintf("spaces[%d].prefill_depth has no effect without the policy tenure; set cpu.policy or disk.policy to it", i))
		}
	}
	return out
}

// adminWarnings say which administrators the mode of admin.socket keeps out.
func adminWarnings(c *config.Config) []string {
	if c.Admin.Mode&0o022 != 0 {
		return nil
	}
	admins := slices.Clone(c.Listen.AdminUIDs)
	for _, r := range c.Access {
		if slices.Contains(r.Rights, "admin") && r.Front == "" {
			admins = append(admins, r.UIDs...)
		}
	}
	slices.Sort(admins)
	admins = slices.DeleteFunc(slices.Compact(admins), func(uid uint32) bool { return uid == 0 || uid == uint32(os.Getuid()) })
	if len(admins) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("users %s have the right admin, but admin.mode %04o admits only root and the daemon's own user; set admin.mode to 0660, and admin.group to a group of theirs",
		strings.Trim(fmt.Sprint(admins), "[]"), c.Admin.Mode)}
}

// literalWarnings say that a pattern has what other patterns know and package glob
// does not.
func literalWarnings(key, match string) []string {
	if !strings.ContainsAny(match, `[]{}\^$`) {
		return nil
	}
	return []string{fmt.Sprintf("%s: only * and ? stand for something else; all other characters of %q are looked for as they are", key, match)}
}

// unitFolders are where systemd looks for units, the first first.
var unitFolders = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// UnitStop is how long systemd lets the unit kvstored.service take to stop, as its
// files say, and the file that says it; false where there is no unit or it says
// nothing.
func UnitStop() (limit time.Duration, file string, ok bool) { return unitStop(unitFolders) }

func unitStop(folders []string) (limit time.Duration, file string, ok bool) {
	const unit = "kvstored.service"
	var files []string
	for _, folder := range folders {
		if path := filepath.Join(folder, unit); len(files) == 0 && exists(path) {
			files = append(files, path) // the others are hidden by it
		}
	}
	for _, folder := range folders {
		more, _ := filepath.Glob(filepath.Join(folder, unit+".d", "*.conf")) // the pattern is good
		files = append(files, more...)
	}
	for _, path := range files {
		if d, said := stopIn(path); said {
			limit, file, ok = d, path, true
		}
	}
	return limit, file, ok
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// stopIn is what one file says.
func stopIn(path string) (limit time.Duration, said bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if name = strings.TrimSpace(name); name == "TimeoutStopSec" || name == "TimeoutSec" {
			if d, ok := unitTime(strings.TrimSpace(value)); ok {
				limit, said = d, true
			}
		}
	}
	return limit, said
}

// unitTime reads a time of systemd's: a number of seconds, or numbers with units.
// Infinity is 0, as 0 is to systemd.
func unitTime(text string) (d time.Duration, ok bool) {
	if text == "infinity" {
		return 0, true
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 {
		return time.Duration(n * float64(time.Second)), true
	}
	short := strings.NewReplacer(" ", "", "minutes", "m", "minute", "m", "min", "m", "seconds", "s", "second", "s", "sec", "s", "hours", "h", "hour", "h", "hr", "h")
	d, err := time.ParseDuration(short.Replace(text))
	return d, err == nil && d >= 0
}

// fileSystem is one that folders of the disk tier lie on, or will once they
// are made.
type fileSystem struct {
	path       string // the first of those folders
	free, held int64  // held by the tier's own files
	data, meta bool   // what lies there: segments, the database
}

// diskWarnings says what the file systems do not allow of the disk tier. What
// this user cannot see the daemon may.
func diskWarnings(c *config.Disk) []string {
	if !c.Enabled() {
		return nil
	}
	out := disk.Warnings(diskOptions(c, zerolog.Nop()))
	systems, err := fileSystems(c)
	if err != nil {
		return out
	}
	return append(out, roomWarnings(systems, c)...)
}

func roomWarnings(systems []fileSystem, c *config.Disk) (out []string) {
	reserve := disk.DefaultMetaReserve(int64(c.Capacity))
	segment := min(disk.DefaultSegment(int64(c.Capacity)), int64(c.Capacity)-reserve)
	all := int64(0)
	for _, f := range systems {
		need, what, room := segment, "a segment", max(0, f.free-int64(c.MinFree))+f.held
		switch {
		case f.data && f.meta:
			need, what = segment+reserve, "a segment and the database"
			all += room
		case f.meta:
			need, what = reserve, "the database"
			all += min(room, reserve)
		default:
			all += room
		}
		if room < need {
			out = append(out, fmt.Sprintf("disk tier: the file system of %s has %s free, less disk.min_free (%s), and %s of the tier: too little for %s (%s)",
				f.path, human.Bytes(f.free), human.Bytes(int64(c.MinFree)), human.Bytes(f.held), what, human.Bytes(need)))
		}
	}
	if int64(c.Capacity) > all {
		out = append(out, fmt.Sprintf("disk tier: disk.capacity is %s, but what is free, less disk.min_free (%s), and what the tier holds come to %s: that will bound it",
			human.Bytes(int64(c.Capacity)), human.Bytes(int64(c.MinFree)), human.Bytes(all)))
	}
	return out
}

// fileSystems are those of the tier's folders, each once.
func fileSystems(c *config.Disk) (out []fileSystem, err error) {
	meta := c.MetaPath()
	folders := c.Paths
	if !slices.Contains(folders, meta) {
		folders = append(slices.Clone(folders), meta)
	}
	for k, path := range folders {
		i := slices.IndexFunc(out, func(f fileSystem) bool { return disk.SameFileSystem(f.path, path) })
		if i < 0 {
			free, err := disk.FreeBytes(path)
			if err != nil {
				return nil, err
			}
			i, out = len(out), append(out, fileSystem{path: path, free: free})
		}
		f := &out[i]
		if !slices.ContainsFunc(folders[:k], func(other string) bool { return below(path, other) }) {
			held, err := disk.OccupiedBytes(path)
			if err != nil {
				return nil, err
			}
			f.held += held
		}
		f.data = f.data || slices.Contains(c.Paths, path)
		f.meta = f.meta || path == meta
	}
	return out, nil
}

// below tells whether path lies in a folder.
func below(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}
