package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/extent"
	"github.com/kvstored/kvstored/internal/handover"
	"github.com/kvstored/kvstored/internal/version"
)

const (
	// answerTimeout is how long a message takes to which the answer is at hand.
	answerTimeout = 5 * time.Second
	// readyTimeout is how long a successor has before the daemon lets go of anything: it
	// maps the arena, and faults it in.
	readyTimeout = 10 * time.Minute
)

// predecessor is the process that hands over, as its successor sees it.
type predecessor struct {
	conn    *handover.Conn
	timeout time.Duration
}

// takeOver asks the daemon that runs for its memory and its sockets. Without one that
// runs there is nothing to be had, and no error: the result is nil.
func takeOver(c *config.Config, log *zerolog.Logger) (in *inheritance, err error) {
	path := config.UpgradeSocketOf(c.Listen.Socket)
	if !c.Upgrade.HandOver {
		return nil, errors.New("upgrade.hand_over: false, and only a daemon that can hand over can take over; set it to true, or stop the daemon and start without --take-over")
	}
	conn, err := handover.Dial(path, answerTimeout)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		log.Info().Str("socket", path).Msg("no daemon hands over; this one begins with empty DRAM")
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take over: %w", err)
	}
	in = &inheritance{from: &predecessor{conn: conn, timeout: c.Upgrade.Timeout}}
	if err := in.take(c, log); err != nil {
		in.from.fail(err)
		in.close()
		return nil, fmt.Errorf("take over: %w; the daemon that runs goes on", err)
	}
	return in, nil
}

// take goes through the steps up to yours.
func (in *inheritance) take(c *config.Config, log *zerolog.Logger) error {
	conn := in.from.conn
	if err := conn.Send(handover.Message{Step: handover.Hello, Program: version.String()}, answerTimeout); err != nil {
		return err
	}
	offer, files, err := conn.Receive(handover.Offer, answerTimeout)
	if err != nil {
		return err
	}
	if len(files) != 2+len(offer.Addresses) {
		handover.CloseAll(files)
		return fmt.Errorf("%d descriptors for the arena and %d addresses", len(files), len(offer.Addresses))
	}
	in.files = make(map[string]*os.File)
	for i, addr := range offer.Addresses {
		in.files[addr] = files[2+i]
	}
	whole, clients := files[0], files[1]
	if err := fits(c, shape{offer.Arena.Bytes, offer.Arena.Direct}); err != nil {
		handover.CloseAll(files[:2])
		return err
	}
	log.Info().Str("from", offer.Program).Stringer("capacity", c.CPU.Capacity).Msg("taking over the memory of the arena")
	in.arena, err = arena.Adopt(arena.Files{Whole: whole, Clients: clients}, arenaOptions(c))
	if err != nil {
		return err
	}
	if err = conn.Send(handover.Message{Step: handover.Ready}, answerTimeout); err != nil {
		return err
	}
	_, files, err = conn.Receive(handover.Yours, drainTimeout+in.from.timeout)
	if err != nil {
		return err
	}
	if len(files) != 1 {
		handover.CloseAll(files)
		return fmt.Errorf("%d descriptors for the directory of DRAM", len(files))
	}
	in.directory = files[0]
	return nil
}

// fits is an error where an arena cannot be that of a configuration.
func fits(c *config.Config, has shape) error {
	const rest = "its DRAM cannot be kept. To change it stop that daemon, which empties DRAM, and start without --take-over"
	switch want := shapeOf(c); {
	case want.bytes != has.bytes:
		return fmt.Errorf("cpu.capacity: %v, and the daemon that runs has %v: %s", config.Bytes(want.bytes), config.Bytes(has.bytes), rest)
	case want.direct != has.direct:
		return fmt.Errorf("arena.puts: %s, and the daemon that runs has another one: %s", c.Arena.Puts, rest)
	}
	return nil
}

// shape is what two arenas have in common of which one can be the other.
type shape struct {
	bytes  int64
	direct bool
}

func shapeOf(c *config.Config) shape {
	return shape{extent.RoundDown(int64(c.CPU.Capacity)), c.Arena.Puts == config.PutsDirect}
}

// EmptiesDRAM says why a daemon with the configuration next cannot keep the DRAM of one
// that runs with running; nil if it can take over.
func EmptiesDRAM(running, next *config.Config) error {
	switch {
	case !running.Upgrade.HandOver:
		return errors.New("the daemon that runs has upgrade.hand_over: false")
	case !next.Upgrade.HandOver:
		return errors.New("upgrade.hand_over: false, and only a daemon that can hand over can take over")
	case running.Listen.Socket != next.Listen.Socket:
		return errors.New("listen.socket: a successor takes over at the socket of the daemon that runs")
	}
	return fits(next, shapeOf(running))
}

// fail tells a predecessor that it has to go on.
func (p *predecessor) fail(why error) {
	p.conn.Fail(version.String(), why)
	_ = p.conn.Close() // all that was to be said was
}

// await waits until it is decided, or fails where the predecessor goes on. From its return on
// that goes on only where this process has ended before serving.
func (p *predecessor) await(uses []string) error {
	err := p.conn.Send(handover.Message{Step: handover.Prepared, Uses: uses}, answerTimeout)
	if err == nil {
		_, _, err = p.conn.Receive(handover.Go, p.timeout)
	}
	if err != nil {
		return fmt.Errorf("take over: %w; the daemon that ran goes on", err)
	}
	return nil
}

// serving ends a hand-over. A predecessor that does not hear of it has ended.
func (p *predecessor) serving() {
	_ = p.conn.Send(handover.Message{Step: handover.Serving}, answerTimeout)
	_ = p.conn.Close()
}
