package keep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/socket"
)

// timeout is how long a keeper has for an answer.
const timeout = 5 * time.Second

// Files are the descriptors that are kept, by name.
type Files map[string]*os.File

// Close closes all of them.
func (f Files) Close() {
	for _, file := range f {
		_ = file.Close() // nothing was written to it
	}
}

// names are those of the files in order, and list are these.
func (f Files) parts() (names []string, list []*os.File) {
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		list = append(list, f[name])
	}
	return names, list
}

// Keeper keeps the descriptors of a daemon.
type Keeper interface {
	// Name is what the keeper is called in messages.
	Name() string
	// Take returns all files of the keeper, or ErrBusy. They are the caller's to close; the
	// keeper has its own, until Keep.
	Take() (Files, error)
	// Keep has the keeper keep f, and drop all others. The files stay the caller's.
	// over says that another connection of the caller's has those before. After an error
	// but ErrBusy the keeper may have the files before, or some.
	Keep(f Files, over bool) error
	// Await returns when the keeper has ended, and let go of the files, or ctx has. It returns
	// silent at once where the keeper has not answered: that may still have files, and is
	// asked nothing more.
	Await(ctx context.Context) (silent bool)
	// Close ends the use of the keeper, which goes on keeping.
	Close() error
}

// ErrBusy says that another daemon has what is kept, and still runs.
var ErrBusy = errors.New("the daemon that has the memory kept still runs; one can have it at a time: stop that one")

// errSilent says that a keeper is not asked again.
var errSilent = errors.New("it has not answered before, and is left alone")

// ErrNone says that nothing keeps descriptors.
var ErrNone = errors.New("nothing keeps the memory of DRAM when this process is killed")

// Find returns the keeper of a daemon: the one that listens at path, else the service
// manager that has started this process. ErrNone says that there is neither. A keeper that
// cannot be used, as one of another user, is an error where there is no manager.
func Find(path string) (Keeper, error) {
	m := managerOf(os.Getenv, firstFD)
	conn, err := dial(path, timeout)
	if err == nil {
		if m != nil {
			m.had.Close()
		}
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
	conn    *Conn
	path    string
	timeout time.Duration // for each message
	silent  bool
}

func (c *client) Name() string { return "the keeper at " + c.path }

func (c *client) Take() (Files, error) { return c.ask(Message{Step: Take}) }

func (c *client) Keep(f Files, over bool) error {
	names, list := f.parts()
	_, err := c.ask(Message{Step: Keep, Names: names, Over: over}, list...)
	return err
}

// ask sends one message and returns the files of the answer.
func (c *client) ask(m Message, files ...*os.File) (Files, error) {
	if c.silent {
		return nil, fmt.Errorf("keeper: %s: %w", m.Step, errSilent)
	}
	m.Program = human.VersionText()
	var answer Message
	var list []*os.File
	err := c.conn.Send(m, c.timeout, files...)
	if err == nil {
		answer, list, err = c.conn.await(Taken, c.timeout)
	}
	if err != nil {
		c.silent = true // the rest of it would be taken for the next answer
	} else if answer.Busy {
		err = ErrBusy
	}
	if err != nil {
		socket.CloseFiles(list)
		return nil, fmt.Errorf("keeper: %s: %w", m.Step, err)
	}
	return named(answer.Names, list)
}

// named are the files of a message by their names. It closes them where it fails.
func named(names []string, list []*os.File) (Files, error) {
	f := make(Files, len(list))
	if len(names) == len(list) {
		for i, name := range names {
			f[name] = list[i]
		}
	}
	if len(f) != len(list) {
		socket.CloseFiles(list)
		return nil, fmt.Errorf("keeper: %d descriptors with %d names: want a name for each, and none twice", len(list), len(names))
	}
	return f, nil
}

func (c *client) Await(ctx context.Context) (silent bool) {
	if !c.silent {
		c.conn.awaitEnd(ctx)
	}
	return c.silent
}

func (c *client) Close() error { return c.conn.Close() }
