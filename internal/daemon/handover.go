package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/checkpoint"
	"github.com/kvstored/kvstored/internal/handover"
	"github.com/kvstored/kvstored/internal/manifest"
	"github.com/kvstored/kvstored/internal/version"
)

// drainTimeout is how long a daemon that hands over takes to let go: of its clients, of
// the work on its tiers, and of these. There is no flush.
const drainTimeout = clientsTimeout + 2*closeTimeout

// closeTimeout is how long its work, and closing its tiers, may take each.
const closeTimeout = 5 * time.Second

// successors hands the daemon over to one process at a time.
type successors struct {
	at    endpoint        // without a Listener where it hands over to none
	busy  atomic.Bool     // one is getting ready
	ready chan *successor // capacity 1
}

// successor is the process that takes over, as its predecessor sees it.
type successor struct {
	conn  *handover.Conn
	peer  *arena.Peer
	files map[string]*os.File // listening sockets by address
	room  *os.File            // for the directory of DRAM
}

// listen takes the address, before anything is served.
func (s *successors) listen(d *Daemon) (err error) {
	s.ready = make(chan *successor, 1)
	if d.cfg.Upgrade.HandOver {
		s.at, err = d.from.listenUnix("upgrade.hand_over", d.cfg.UpgradeSocket(), 0o600, "")
	}
	return err
}

// serve gets successors ready until ctx ends.
func (s *successors) serve(ctx context.Context, d *Daemon) error {
	if s.at.Listener == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { _ = s.at.Close() })
	defer stop()
	var meetings errgroup.Group
	defer meetings.Wait() //nolint:errcheck // they have none
	for {
		conn, err := s.at.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("upgrade.hand_over: accept: %w", err)
		}
		meetings.Go(func() error {
			s.meet(ctx, d, conn.(*net.UnixConn))
			return nil
		})
	}
}

// meet goes through the steps up to ready, during which the daemon serves as ever.
func (s *successors) meet(ctx context.Context, d *Daemon, uc *net.UnixConn) {
	next := &successor{}
	var err error
	next.peer, err = arena.PeerOf(uc)
	if err == nil {
		next.conn, err = handover.NewConn(uc)
	} else {
		_ = uc.Close()
	}
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = uc.CloseRead() })
		err = s.prepare(d, next)
		if !stop() {
			err = errors.Join(err, errors.New("the daemon ends"))
		}
	}
	if err != nil {
		d.log.Warn().Err(err).Msg("a successor came and was not ready; this daemon goes on")
		next.fail(err)
		return
	}
	s.ready <- next
}

// prepare makes an offer and waits until it is taken. An error leaves nothing but what
// fail gives back.
func (s *successors) prepare(d *Daemon, next *successor) (err error) {
	hello, _, err := next.conn.Receive(handover.Hello, answerTimeout)
	if err != nil {
		return err
	}
	if !s.busy.CompareAndSwap(false, true) {
		return errors.New("another process is taking over; try again when it has")
	}
	defer func() {
		if err != nil {
			s.busy.Store(false)
		}
	}()
	memory, err := d.arena.Files()
	if err != nil {
		return err
	}
	offer := handover.Message{
		Step: handover.Offer, Program: version.String(),
		Arena: handover.Arena{Bytes: d.arena.Stats().CapacityBytes, Direct: d.quarantine != nil},
	}
	files := []*os.File{memory.Whole, memory.Clients}
	next.files = make(map[string]*os.File)
	for _, e := range d.endpoints() {
		f, err := e.Listener.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			return fmt.Errorf("%s: %w", e.addr, err)
		}
		next.files[e.addr] = f
		offer.Addresses, files = append(offer.Addresses, e.addr), append(files, f)
	}
	// Memory for the directory is taken while there is a way back.
	if next.room, err = handover.NewMemory("kvstored-directory", int64(d.cpu.Ledger().Stats().Entries)*checkpoint.RecordBytes); err != nil {
		return err
	}
	if err := next.conn.Send(offer, answerTimeout, files...); err != nil {
		return err
	}
	d.log.Info().Str("successor", hello.Program).Msg("a successor gets ready")
	_, _, err = next.conn.Receive(handover.Ready, readyTimeout)
	return err
}

// fail tells a successor that it does not take over, and closes its files.
func (next *successor) fail(why error) {
	if next.conn != nil {
		next.conn.Fail(version.String(), why)
	}
	next.close()
}

func (next *successor) close() {
	if next.conn != nil {
		_ = next.conn.Close() // all that was to be said was
	}
	if next.peer != nil {
		_ = next.peer.Close()
	}
	if next.room != nil {
		_ = next.room.Close()
	}
	for _, f := range next.files {
		_ = f.Close() // it was not listened on
	}
}

// handOver lets go of everything, as an end does but for the flush, and gives it to the
// successor. Where that fails it returns a daemon that has all of it again. It returns
// nil, nil where the successor goes on.
func (next *successor) handOver(d *Daemon, clients, workers *errgroup.Group, stopServing, stopBelow func()) (*Daemon, error) {
	begun := time.Now()
	d.log.Info().Msg("handing over")
	in := next.letGo(d, clients, workers, stopServing, stopBelow)
	if in.directory == nil {
		next.conn.Fail(version.String(), errors.New("the directory of DRAM could not be written"))
	} else if uses, err := next.give(d, in.directory); err == nil {
		unlistenOthers(d, uses)
		if err := manifest.Void(d.manifest.File()); err != nil { // the successor has its own
			d.log.Error().Err(err).Msg("the manifest of this process")
		}
		d.log.Info().Stringer("took", time.Since(begun).Round(time.Millisecond)).Msg("handed over; this process ends")
		next.close()
		return nil, nil
	} else if errors.Is(err, errGiven) {
		next.close()
		return nil, err
	} else {
		d.log.Error().Err(err).Msg("the successor failed; this process goes on")
		next.conn.Fail(version.String(), err)
		if errors.Is(err, errTouched) {
			_ = in.directory.Close() // it was read by the other process
			in.directory = nil
		}
	}
	in.files = next.files
	_ = next.conn.Close() // it was told
	_ = next.peer.Close()
	o := d.options
	o.TakeOver = false
	again, err := newDaemon(d.reloads.running(), o, in, d.keeper)
	in.close()
	if err != nil {
		return nil, fmt.Errorf("go on after a hand-over that failed: %w", err)
	}
	// Its memory stays mapped: work that hangs may still note its end there.
	if err := errors.Join(manifest.Void(d.manifest.File()), d.manifest.File().Close()); err != nil {
		d.log.Error().Err(err).Msg("the manifest before the hand-over")
	}
	d.log.Info().Stringer("took", time.Since(begun).Round(time.Millisecond)).Msg("serving again")
	return again, nil
}

// letGo ends all work and writes the directory. A part that hangs is left behind,
// and the blocks that it may still write are kept out of use.
func (next *successor) letGo(d *Daemon, clients, workers *errgroup.Group, stopServing, stopBelow func()) *inheritance {
	hangs := func(err error) {
		if err != nil && !errors.Is(err, context.Canceled) {
			d.log.Warn().Err(err).Msg("handing over")
		}
	}
	stopServing()
	left := within(clientsTimeout, "clients' requests", clients.Wait)
	hangs(left)
	d.stack.Stay()
	stopBelow()
	hangs(within(closeTimeout, "work on the tiers", func() error {
		err := workers.Wait()
		d.stack.Wait()
		return err
	}))
	hangs(within(closeTimeout, "closing the tiers", func() error {
		d.tiers.closeBelow(func(what string, err error) {
			if err != nil {
				d.log.Error().Err(err).Msg("close " + what)
			}
		})
		return nil
	}))
	// The directory has no ages: chunks with a bound go on from the tiers below only.
	hangs(d.cpu.Delete(context.Background(), d.ages.Keys()))
	d.manifest.Finish() // it is right until a successor has its own, or this process a new one
	in := &inheritance{arena: d.arena.Renew(), directory: next.room}
	next.room = nil
	_, err := cpu.Save(d.cpu, in.directory)
	if d.quarantine != nil && left == nil { // else a client that hangs may still add to it
		_ = d.quarantine.Close() // its blocks are kept out of use from now on
	}
	if err == nil {
		err = handover.Seal(in.directory)
	}
	if err != nil {
		d.log.Error().Err(err).Msg("the directory of DRAM cannot be written; DRAM will be empty")
		_ = in.directory.Close()
		in.directory = nil
	}
	return in
}

var (
	// errGiven says that the memory cannot be taken back.
	errGiven = errors.New("the successor has everything, and does not say that it serves")
	// errTouched says that DRAM may be otherwise than its directory has it.
	errTouched = errors.New("it had begun to serve when it was ended: what is in DRAM is not trusted")
)

// give hands over what letGo has let go of, and returns the addresses that the successor
// uses. An error but errGiven says that it changed nothing: before go it may not, and
// what hangs between go and serving is killed first.
func (next *successor) give(d *Daemon, directory *os.File) (uses []string, err error) {
	timeout := d.reloads.running().Upgrade.Timeout
	if err := next.conn.Send(handover.Message{Step: handover.Yours}, answerTimeout, directory); err != nil {
		return nil, err
	}
	prepared, _, err := next.conn.Receive(handover.Prepared, timeout)
	if err != nil {
		return nil, err
	}
	if err := next.conn.Send(handover.Message{Step: handover.Go}, answerTimeout); err != nil {
		return nil, err
	}
	_, _, err = next.conn.Receive(handover.Serving, timeout)
	if err == nil {
		return prepared.Uses, nil
	}
	if kerr := next.peer.Kill(closeTimeout); kerr != nil {
		return nil, fmt.Errorf("%w: %w; %w", errGiven, err, kerr)
	}
	// A successor says serving before it changes anything, and its words outlive it.
	if _, _, late := next.conn.Receive(handover.Serving, answerTimeout); late == nil {
		return nil, fmt.Errorf("%w; %w", err, errTouched)
	}
	return nil, fmt.Errorf("%w; its process has ended", err)
}

// unlistenOthers removes the sockets that the successor does not use.
func unlistenOthers(d *Daemon, uses []string) {
	for _, e := range d.endpoints() {
		if slices.Contains(uses, e.addr) {
			continue
		}
		if err := e.remove(); err != nil {
			d.log.Warn().Err(err).Msg("a socket that is not used any more stays")
		}
	}
}
