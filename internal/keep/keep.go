package keep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/handover"
	"github.com/kvstored/kvstored/internal/version"
)

// timeout is how long a keeper has for an answer.
const timeout = 5 * time.Second

// Files are the descriptors that are kept.
type Files struct {
	Arena    arena.Files
	Manifest *os.File
}

func (f *Files) list() []*os.File { return []*os.File{f.Arena.Whole, f.Arena.Clients, f.Manifest} }

// Close closes all of them.
func (f *Files) Close() { handover.CloseAll(f.list()) }

func filesOf(list []*os.File) *Files {
	return &Files{Arena: arena.Files{Whole: list[0], Clients: list[1]}, Manifest: list[2]}
}

// Keeper keeps the descriptors of a daemon.
type Keeper interface {
	// Name is what the keeper is called in messages.
	Name() string
	// Take returns what the keeper has, nil if that is nothing, or ErrBusy. The files are the
	// caller's to close; the keeper has its own of the same memory, until Keep.
	Take() (*Files, error)
	// Keep has the keeper keep f, and drop the files before. The files stay the caller's.
	// over says that the caller takes over from the daemon that has those. After an error
	// but ErrBusy the keeper may have the files before, or none.
	Keep(f *Files, over bool) error
	// Drop has the keeper keep nothing.
	Drop() error
	// Await returns when the keeper has ended, and let go of the files, or ctx has. It returns
	// silent at once where the keeper has not answered: that may still have files, and is
	// asked nothing more; Keep of another Keeper takes over from this one then.
	Await(ctx context.Context) (silent bool)
	// Close ends the use of the keeper, which goes on keeping.
	Close() error
}

// ErrBusy says that another daemon has what is kept, and still runs.
var ErrBusy = errors.New("the daemon that has the memory kept still runs; one can have it at a time: stop that one, or take over from it")

// errSilent says that a keeper is not asked again.
var errSilent = errors.New("it has not answered before, and is left alone")

// ErrNone says that nothing keeps descriptors.
var ErrNone = errors.New("nothing keeps the memory of DRAM when this process is killed")

// Find returns the keeper of a daemon: the one that listens at path, else the service
// manager that has started this process. ErrNone says that there is neither. A keeper that
// cannot be used, as one of another user, is an error where there is no manager.
func Find(path string) (Keeper, error) {
	m := managerOf(os.Getenv, firstFD)
	conn, err := handover.Dial(path, timeout)
	if err == nil {
		m.letGo()
		return &client{conn: conn, path: path, timeout: timeout}, nil
	}
	switch {
	case m != nil:
		return m, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, ErrNone
	}
	return nil, fmt.Errorf("keeper at %s: %w", path, err)
}

// client is a Keeper that a Server serves. A keeper that does not answer, or answers with
// nonsense, is left alone from then on: it would hold the daemon up again. The connection
// stays, for its end says that the daemon has ended.
type client struct {
	conn    *handover.Conn
	path    string
	timeout time.Duration // for each message
	silent  bool
}

func (c *client) Name() string { return "the keeper at " + c.path }

func (c *client) Take() (*Files, error) {
	list, err := c.ask(handover.Message{Step: handover.Take})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	if len(list) != kept {
		handover.CloseAll(list)
		return nil, fmt.Errorf("keeper: %d descriptors, and %d are those of a daemon", len(list), kept)
	}
	return filesOf(list), nil
}

func (c *client) Keep(f *Files, over bool) error {
	_, err := c.ask(handover.Message{Step: handover.Keep, Over: over}, f.list()...)
	return err
}

func (c *client) Drop() error {
	_, err := c.ask(handover.Message{Step: handover.Keep})
	return err
}

// ask sends one message and returns the descriptors of the answer.
func (c *client) ask(m handover.Message, files ...*os.File) ([]*os.File, error) {
	if c.silent {
		return nil, fmt.Errorf("keeper: %s: %w", m.Step, errSilent)
	}
	m.Program = version.String()
	var answer handover.Message
	var list []*os.File
	err := c.conn.Send(m, c.timeout, files...)
	if err == nil {
		answer, list, err = c.conn.Receive(handover.Taken, c.timeout)
	}
	switch {
	case err != nil:
		c.silent = true // the rest of it would be taken for the next answer
	case answer.Busy:
		handover.CloseAll(list)
		err = ErrBusy
	default:
		return list, nil
	}
	return nil, fmt.Errorf("keeper: %s: %w", m.Step, err)
}

func (c *client) Await(ctx context.Context) (silent bool) {
	if !c.silent {
		c.conn.AwaitEnd(ctx)
	}
	return c.silent
}

func (c *client) Close() error { return c.conn.Close() }
