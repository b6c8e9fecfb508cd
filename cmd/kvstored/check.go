package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/daemon"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/human"
)

const checkHelp = `Check a configuration file and print the effective configuration, with every
default and with the overrides of the environment; without a file, that of a
daemon that was given none. What is wrong is printed one problem a line, as
file:line:column: key.path: what is wrong. Comments below the configuration say
what it comes to on this machine.

It also tries what would keep serve from starting on this machine: addresses in
use, folders that are another daemon's, a password file or a group that is not
there. Each is an error, and the exit code is 1. So is what keeps the disk tier
from being opened (a full disk, missing rights), without which serve would start
and go on trying. What serve
would start with, but hardly as it was meant, is a warning. Both are printed on
standard error. Nothing is changed; with write.mode auto the speed of the
disk is measured, with up to 64 MiB in a file that is gone at once. What a user may do counts: run it as the
daemon's. --file-only leaves the machine out: for the configuration of another
machine, or of a daemon that runs.

With --rewrite it prints FILE without the keys and values that left kvstored, comments kept,
and says on standard error what there is in place of each. FILE stays as it is.

With --connect it also tries the remote tier, with everything the daemon needs
there: it puts a small object, reads, lists and deletes it. While the daemon
runs, that takes both flags.

With --running it says what would change of the daemon that runs at admin.socket: by a
reload or by a restart, and whether that empties DRAM. It leaves out the rest that is of
this machine. Without a file it prints the configuration that this daemon has now: that
of its start, with what reloads have changed since (SIGHUP has it read its file again).
Comments at the end name the keys of that file whose values wait for a restart. It takes
an admin.`

func checkCommand() *cobra.Command {
	var connect, fileOnly, running, rewrite bool
	var at adminFlags
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration, and whether the daemon would start with it here",
		Long:  checkHelp,
		Example: `  kvstored check kvstored.yaml
  kvstored check --file-only > kvstored.yaml   # all defaults, to edit`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := ""
			switch {
			case rewrite:
				return rewriteFile(cmd, args)
			case len(args) == 1:
				path = args[0]
			case running:
				return at.call(func(c *admin.Client) error { return printRunning(cmd, c) })
			}
			cfg, err := loadConfig(path, !fileOnly)
			if err != nil {
				return err
			}
			if err := cfg.Print(cmd.OutOrStdout()); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout())
			errs, keeper := daemon.Problems(nil), ""
			if !fileOnly && !running {
				errs, keeper = daemon.Preflight(&cfg)
			}
			summarize(cmd.OutOrStdout(), &cfg, !fileOnly, keeper)
			if !fileOnly {
				checkStop(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), &cfg)
			}
			for _, text := range daemon.Warnings(&cfg, !fileOnly) {
				fmt.Fprintln(cmd.ErrOrStderr(), "kvstored: warning:", text)
			}
			if connect {
				err = checkRemote(cmd.Context(), cmd.OutOrStdout(), &cfg.Remote.S3)
			}
			if running && err == nil {
				err = againstRunning(cmd.Context(), cmd.OutOrStdout(), &cfg)
			}
			if len(errs) == 0 {
				return err
			}
			if err != nil {
				errs = append(errs, err)
			}
			return errs
		},
	}
	cmd.Flags().BoolVar(&connect, "connect", false, "try the remote tier too")
	cmd.Flags().BoolVar(&fileOnly, "file-only", false, "leave this machine out, and what would keep serve from starting here")
	cmd.Flags().BoolVar(&rewrite, "rewrite", false, "print the file without the keys and values that left")
	cmd.Flags().BoolVar(&running, "running", false, "of the daemon that runs: its configuration, or what the file would change and what that costs")
	at.add(cmd)
	return cmd
}

// rewriteFile prints a file without the keys and values that left.
func rewriteFile(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("check --rewrite: name the file")
	}
	fresh, taken, err := config.Rewrite(args[0])
	for _, e := range taken {
		fmt.Fprintln(cmd.ErrOrStderr(), strings.Replace(e.Error(), "; take it out", "; it is taken out", 1))
	}
	if _, werr := cmd.OutOrStdout().Write(fresh); werr != nil {
		return werr
	}
	if err != nil {
		return &exitError{exitConfig, err}
	}
	return nil
}

// checkRemote tries the remote tier. It prints comments of the file
// printed before.
func checkRemote(ctx context.Context, w io.Writer, c *config.S3) error {
	if !c.Enabled() {
		_, err := fmt.Fprintln(w, "# remote tier: none; remote.s3.bucket is empty")
		return err
	}
	notes, err := daemon.CheckRemote(ctx, c)
	if err != nil {
		return &exitError{exitFailure, fmt.Errorf("bucket %s: %w", c.Bucket, err)} // whatever could not be reached is no daemon
	}
	for _, n := range notes {
		fmt.Fprintln(w, "# remote tier:", n)
	}
	return nil
}

// againstRunning lists, as comments, the changes that would have the daemon that runs at the
// admin.socket of a configuration run with that configuration.
func againstRunning(ctx context.Context, w io.Writer, next *config.Config) error {
	c := admin.NewClient(next.AdminSocket(), 0)
	defer c.Close()
	var has admin.Config
	if err := c.Get(ctx, "/v1/config", &has); err != nil {
		return adminError{err}
	}
	running, err := config.Parse("the daemon that runs", []byte(has.Running), config.Rules{})
	if err != nil {
		return fmt.Errorf("the configuration of the daemon at %s, which may be of another version: %w", next.AdminSocket(), err)
	}
	changes := config.Compare(&running, next)
	if len(changes) == 0 {
		_, err := fmt.Fprintf(w, "# the daemon at %s runs with this configuration\n", next.AdminSocket())
		return err
	}
	restart := false
	for _, ch := range changes {
		how := "a reload applies it"
		if !ch.Live {
			how, restart = "takes a restart", true
		}
		fmt.Fprintf(w, "# against the daemon that runs: %s: %s -> %s: %s\n", ch.Path, ch.Old, ch.New, how)
	}
	if !restart {
		return nil
	}
	if why := daemon.EmptiesDRAM(&running, next); why != nil {
		_, err = fmt.Fprintf(w, "# that restart empties DRAM, of %s: %v\n", running.CPU.Capacity, why)
		return err
	}
	fmt.Fprintln(w, "# that restart keeps DRAM where systemd or serve --keeper has it, as the log of the daemon says, and else empties it")
	if running.CPU.HugePages != next.CPU.HugePages {
		fmt.Fprintln(w, "# and leaves the pages of DRAM as they are: cpu.hugepages counts for new ones only")
	}
	return nil
}

// printRunning prints the configuration of the daemon that runs.
func printRunning(cmd *cobra.Command, c *admin.Client) error {
	var has admin.Config
	if err := c.Get(cmd.Context(), "/v1/config", &has); err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	fmt.Fprint(w, has.Running)
	if !has.LastReloadOK {
		fmt.Fprintln(w, "# the last reload was refused; the daemon's log says why")
	}
	for _, k := range has.NeedsRestart {
		fmt.Fprintf(w, "# waits for a restart: %s: %s\n", k.Path, k.New)
	}
	return nil
}

// How long the measuring of one folder may take, and what the end of a daemon takes
// beside its flush.
const (
	measureWithin = 5 * time.Second
	endTakes      = 5 * time.Second
)

// checkStop says how long it takes to write what only DRAM may have at the end of the
// daemon, at the speed of the disk, and warns where that is too long. Mode through
// leaves little to write.
func checkStop(ctx context.Context, out, warn io.Writer, c *config.Config) {
	if !c.Disk.Enabled() || c.Write.Mode != config.WriteAuto {
		return
	}
	speed := 0.0
	for _, path := range c.Disk.Paths {
		ctx, cancel := context.WithTimeout(ctx, measureWithin)
		n, err := disk.MeasureWrite(ctx, path)
		cancel()
		if err != nil {
			fmt.Fprintf(out, "# stop: not known how long it takes to write what only DRAM has: %v\n", err)
			return
		}
		speed += n
	}
	unit, file, known := daemon.UnitStop()
	takes := time.Duration(float64(c.CPU.Capacity) / speed * float64(time.Second))
	fmt.Fprintf(out, "# stop: write.mode %s leaves up to %s in DRAM only; at %s, as measured now with large writes, that takes %s\n",
		c.Write.Mode, human.Bytes(int64(c.CPU.Capacity)), human.Rate(speed/1e9), human.Duration(takes))
	for _, text := range stopWarnings(c, takes, unit, file, known) {
		fmt.Fprintln(warn, "kvstored: warning:", text)
	}
}

// stopWarnings are of what a stop would lose.
func stopWarnings(c *config.Config, takes, unit time.Duration, file string, known bool) (out []string) {
	if takes > c.Stop.Flush {
		out = append(out, fmt.Sprintf("stop.flush is %s, but to write what only DRAM may have takes %s; what is left then is lost: raise it, or set write.mode through", human.Duration(c.Stop.Flush), human.Duration(takes)))
	}
	if known && unit > 0 && unit < c.Stop.Flush+endTakes {
		out = append(out, fmt.Sprintf("%s lets the daemon take %s to stop, less than stop.flush and %s: it would be killed while it writes; raise TimeoutStopSec", file, human.Duration(unit), human.Duration(endTakes)))
	}
	return out
}

// summarize prints what a configuration comes to, as comments; if here, on this
// machine. keeper is what one holds, or empty.
func summarize(w io.Writer, c *config.Config, here bool, keeper string) {
	var l human.List
	l.Row("clients", "%s, mode %04o", c.Listen.Socket, c.Listen.Mode)
	if len(c.Listen.RESP) > 0 {
		l.Row("", "Redis: %s", strings.Join(c.Listen.RESP, ", "))
	}
	summarizeAccess(&l, c)
	if c.Admin.Listen != "" {
		l.Row("metrics", "http://%s/metrics", c.Admin.Listen)
		names := "without names of clients and prompts, which admin.dashboard: true shows"
		if c.Admin.Dashboard {
			names = "with names of clients and prompts, for all who reach it (admin.dashboard)"
		}
		l.Row("dashboard", "http://%s/dashboard/, %s", c.Admin.Listen, names)
	}
	summarizeDRAM(&l, c)
	if c.CPU.Keep && keeper != "" {
		l.Row("keep", "%s", keeper)
	}
	summarizeMemory(&l, c, here)
	summarizeChunks(&l, c, here)
	summarizeDisk(&l, &c.Disk, here)
	if s := &c.Remote.S3; s.Enabled() {
		l.Row("remote", "bucket %s at %s; --connect tries it", s.Bucket, cmp.Or(s.Endpoint, "Amazon S3, "+s.Region))
	} else {
		l.Row("remote", "none")
	}
	l.Print(w, "# ")
}

// summarizeAccess says who can read all of DRAM.
func summarizeAccess(l *human.List, c *config.Config) {
	if len(c.Access) == 0 {
		l.Row("access", "every client may map the arena, and so read all of DRAM")
		return
	}
	var uids []uint32
	for _, r := range c.Access {
		if r.Map {
			uids = append(uids, r.UIDs...)
		}
	}
	slices.Sort(uids)
	who := "only root and the daemon's own user"
	switch uids = slices.Compact(uids); len(uids) {
	case 0:
	case 1:
		who = fmt.Sprintf("user %d", uids[0])
	default:
		who = "users " + strings.Trim(fmt.Sprint(uids), "[]")
	}
	l.Row("access", "rules; %s may map the arena, and so read all of DRAM", who)
}

// summarizeDRAM says what the shares of DRAM are in bytes.
func summarizeDRAM(l *human.List, c *config.Config) {
	b := daemon.LimitsOfDRAM(int64(c.CPU.Capacity))
	l.Row("DRAM", "%s of shared memory, taken at start", human.Bytes(int64(c.CPU.Capacity)))
	l.Row("", "leases and fills %s, half of that for one client of several; pins %s, loads %s, unwritten %s; %s in all",
		human.Bytes(b.Lease), human.Bytes(b.Pin), human.Bytes(b.Load), human.Bytes(b.Unwritten), human.Bytes(b.Total))
}

// summarizeMemory says how the memory is divided.
func summarizeMemory(l *human.List, c *config.Config, here bool) {
	p, source := daemon.MemoryPlan(c, here)
	from := "derived"
	if c.Limits.Memory > 0 {
		from = "limits.memory"
	}
	l.Row("memory", "clients outside DRAM %s (%s), %s of it for one user", human.Bytes(p.Clients), from, human.Bytes(daemon.OfOneUser(p.Clients)))
	l.Row("", "in all %s: DRAM %s, the database's process %s, the daemon itself %s, what it knows of chunks %s, its clients %s and what is not collected of that %s",
		human.Bytes(p.Total()), human.Bytes(p.Arena), human.Bytes(p.Database), human.Bytes(p.Own), human.Bytes(p.Chunks), human.Bytes(p.Clients), human.Bytes(p.Garbage))
	l.Row("", "of the daemon itself, %s are for the sample of `kvstored lab`", human.Bytes(explain.SampleBytes))
	if p.Limit > 0 {
		l.Row("", "of %s, by %s; the Go heap may have %s, unless GOMEMLIMIT says otherwise", human.Bytes(p.Limit), source, human.Bytes(p.GoLimit()))
	}
}

// summarizeChunks says how many chunks there may be, and how large they are where a
// tier's bytes are used up first.
func summarizeChunks(l *human.List, c *config.Config, here bool) {
	p, _ := daemon.MemoryPlan(c, here)
	l.Row("chunks", "%d in DRAM and as many on disk, %d bytes of memory each", p.Number, p.Chunks/p.Number)
	full := fmt.Sprintf("DRAM is full with chunks of %s or more on average", human.Bytes(max(int64(c.CPU.Capacity)/p.Number, 4<<10)))
	if c.Disk.Enabled() {
		full += fmt.Sprintf(", the disk with %s", human.Bytes(int64(c.Disk.Capacity)/p.Number))
	}
	l.Row("", "%s; of smaller ones that number is evicted first", full)
}

// summarizeDisk says how much room there is.
func summarizeDisk(l *human.List, c *config.Disk, here bool) {
	if !c.Enabled() {
		l.Row("disk", "none")
		return
	}
	database := ""
	if !slices.Contains(c.Paths, c.MetaPath()) {
		database = "; database in " + c.MetaPath()
	}
	l.Row("disk", "up to %s, %s left free for others%s", human.Bytes(int64(c.Capacity)), human.Bytes(int64(c.MinFree)), database)
	for _, path := range c.Paths {
		if !here {
			l.Row("", "%s", path)
			continue
		}
		free := "free space unknown"
		if n, err := disk.FreeBytes(path); err == nil {
			free = human.Bytes(n) + " free"
		}
		if _, err := os.Stat(path); os.IsNotExist(err) {
			free += "; made at start"
		}
		if path == c.MetaPath() {
			free += "; with the database"
		}
		l.Row("", "%s: %s", path, free)
	}
}
