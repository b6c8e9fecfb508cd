package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/blob"
	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/lm"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/key"
)

// shelterShare is the part of the arena that keeps, for a moment, what a front
// end's clients have only asked about.
const shelterShare = 0.1

// fronts are the front ends for clients of other stores.
type fronts struct {
	password string // of resp
	respAt   []endpoint
	lmAt     []endpoint
	stores   []*blob.Store
	resp     *resp.Server // nil: off
	lm       *lm.Server   // nil: off
}

// endpoint is a listener, and for a Unix socket what was put where.
type endpoint struct {
	net.Listener
	path   string
	socket os.FileInfo
}

func (e *endpoint) String() string {
	if e.path != "" {
		return e.path
	}
	return e.Addr().String()
}

// isSocket tells a socket's path from host:port.
func isSocket(addr string) bool { return strings.HasPrefix(addr, "/") }

func listenTCP(key, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: listen on %s: %w; choose another address", key, addr, err)
	}
	return l, nil
}

// readPassword is what a file names as the password: its first line. Without a
// file there is none.
func readPassword(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("listen.resp_password_file: %w", err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
		return "", fmt.Errorf("listen.resp_password_file: the first line of %s is empty; write the password there", path)
	}
	return string(line), nil
}

// listenAt takes an address of the configuration: a socket's path or host:port.
func (d *daemon) listenAt(key, addr string) (e endpoint, err error) {
	if !isSocket(addr) {
		e.Listener, err = listenTCP(key, addr)
		return e, err
	}
	l, err := server.Listen(addr, d.cfg.Listen.Mode, d.cfg.Listen.Group)
	if err != nil {
		return e, fmt.Errorf("%s: %w", key, err)
	}
	e = endpoint{Listener: l, path: addr}
	if e.socket, err = os.Lstat(addr); err != nil {
		_ = l.Close()
	}
	return e, err
}

// listenFronts takes the front ends' addresses, before anything is served.
func (d *daemon) listenFronts() (err error) {
	c, f := &d.cfg.Listen, &d.fronts
	if f.password, err = readPassword(c.RESPPasswordFile); err != nil {
		return err
	}
	for _, addr := range c.RESP {
		e, err := d.listenAt("listen.resp", addr)
		if err != nil {
			return err
		}
		f.respAt = append(f.respAt, e)
	}
	if c.LM == "" {
		return nil
	}
	e, err := d.listenAt("listen.lm", c.LM)
	if err == nil {
		f.lmAt = append(f.lmAt, e)
	}
	return err
}

// entrance asks the server who may connect to a front end.
type entrance struct {
	server *server.Server
	front  string
	log    zerolog.Logger // not every front end can tell its client
}

func (d *daemon) entrance(front string) *entrance {
	return &entrance{d.server, front, d.log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})}
}

// refused says in the log who was, and returns the error.
func (e *entrance) refused(conn net.Conn, err error) error {
	if err != nil {
		at := strings.TrimSuffix(conn.LocalAddr().String(), "~") // as before it was moved into place
		e.log.Warn().Err(err).Str("address", at).Msg("a client of a front end was refused")
	}
	return err
}

func (e *entrance) admit(conn net.Conn) (access.Peer, error) {
	peer, err := e.server.Admit(e.front, conn)
	if err != nil {
		return nil, e.refused(conn, err)
	}
	return peer, nil
}

func (e *entrance) enter(conn net.Conn) (*fair.Turn, func(), error) {
	turn, leave, err := e.server.Enter(conn)
	return turn, leave, e.refused(conn, err)
}

func (d *daemon) makeFronts() error {
	f := &d.fronts
	if len(f.respAt) > 0 {
		s, err := d.makeStore(config.FrontRESP)
		if err != nil {
			return fmt.Errorf("listen.resp: %w", err)
		}
		e := d.entrance(config.FrontRESP)
		f.resp = resp.New(resp.Options{
			Store: s, NewOwner: d.stack.NewOwner, CloseOwner: d.stack.CloseOwner,
			Memory: func() resp.Memory {
				st := d.cpu.Stats()
				return resp.Memory{UsedBytes: st.UsedBytes, CapacityBytes: st.CapacityBytes, Policy: st.Policy}
			},
			Admit: e.admit, Enter: e.enter, Settings: respSettings(&d.cfg.Listen, f.password), Version: version(), Spin: d.cfg.Arena.Spin,
			Budget: d.budget, Limits: resp.Limits{Connections: d.cfg.Limits.Connections, StallTimeout: d.cfg.Limits.Stall},
			Log: d.log.With().Str("component", "resp").Logger(),
		})
	}
	if len(f.lmAt) > 0 {
		s, err := d.makeStore(config.FrontLM)
		if err != nil {
			return fmt.Errorf("listen.lm: %w", err)
		}
		e := d.entrance(config.FrontLM)
		f.lm = lm.New(lm.Options{
			Store: s, NewOwner: d.stack.NewOwner, CloseOwner: d.stack.CloseOwner,
			Admit: e.admit, Enter: e.enter, Budget: d.budget,
			Connections: d.cfg.Limits.Connections, StallTimeout: d.cfg.Limits.Stall,
			Log: d.log.With().Str("component", "lm").Logger(),
		})
	}
	return nil
}

// frontSpaces names the spaces of all front ends, also of those that are off:
// what they stored may still be there.
func frontSpaces() map[key.SpaceID]string {
	names := make(map[key.SpaceID]string)
	for _, name := range []string{config.FrontRESP, config.FrontLM} {
		names[blob.SpaceOf(name)] = name
	}
	return names
}

// makeStore makes the named values of one front end. What the disk owes it is
// noted beside the daemon's socket: the disk may be what fails.
func (d *daemon) makeStore(name string) (*blob.Store, error) {
	o := blob.Options{
		Stack: d.stack, Space: name, LoadTimeout: d.cfg.Prefetch.Deadline, Log: d.log,
		ShelterBytes: int64(shelterShare * float64(d.arena.Stats().CapacityBytes)),
	}
	if d.cfg.Disk.Enabled() { // else nothing is owed, and what was still is
		o.OwedFile = d.cfg.Listen.Socket + "." + name + "-owed"
	}
	s, err := blob.New(o)
	if err == nil {
		d.fronts.stores = append(d.fronts.stores, s)
	}
	return s, err
}

// serveFronts adds the front ends to what serves until ctx ends.
func (d *daemon) serveFronts(ctx context.Context, g *errgroup.Group) {
	f := &d.fronts
	for _, s := range f.stores {
		g.Go(func() error { return s.Run(ctx) })
	}
	for _, e := range f.respAt {
		g.Go(func() error { return f.resp.Serve(ctx, e.Listener) })
		d.log.Info().Str("address", e.String()).Msg("serving Redis clients")
	}
	for _, e := range f.lmAt {
		g.Go(func() error { return f.lm.Serve(ctx, e.Listener) })
		d.log.Info().Str("address", e.String()).Msg("serving lm:// clients")
	}
}

func (d *daemon) closeFronts(fail func(string, error)) {
	for _, e := range append(d.fronts.respAt, d.fronts.lmAt...) {
		fail("front end", e.Close())
		if e.path != "" {
			fail("front end's socket", server.Unlisten(e.path, e.socket))
		}
	}
}

func (d *daemon) frontStats(out *daemonStats) {
	if d.fronts.resp != nil {
		st := d.fronts.resp.Stats()
		out.RESP = &st
	}
	if d.fronts.lm != nil {
		st := d.fronts.lm.Stats()
		out.LM = &st
	}
}

var (
	descFrontConnections = desc("front_connections", "Connections of a front end now.", "front")
	descFrontTotal       = desc("front_connections_total", "Connections a front end has served.", "front")
	descFrontRefused     = desc("front_connections_refused_total", "Connections a front end had no room for, or whose user may not connect.", "front")
	descFrontLogins      = desc("front_logins_refused_total", "Logins of a front end's clients with a wrong password or user.", "front")
	descFrontRequests    = desc("front_requests_total", "Commands of a front end's clients.", "front")
	descFrontErrors      = desc("front_errors_total", "Commands that a front end could not carry out.", "front")
	descFrontMalformed   = desc("front_malformed_total", "Connections closed because of input that made no sense.", "front")
	descFrontHits        = desc("front_hits_total", "Values read through a front end.", "front")
	descFrontMisses      = desc("front_misses_total", "Values asked for and not found.", "front")
	descFrontDropped     = desc("front_dropped_total", "Values that a front end took and did not keep; it made sure that their names have none.", "front", "reason")
	descFrontOwed        = desc("front_owed_deletions", "Old values that could not be deleted from the disk yet; their names read as absent.", "front")
	descFrontHungUp      = desc("front_hung_up_total", "Connections closed because the client might not understand an error.", "front")
	descFrontStored      = desc("front_stored_total", "Values stored through a front end.", "front")
	descFrontRead        = desc("front_read_bytes_total", "Bytes read from a front end's clients.", "front")
	descFrontWritten     = desc("front_written_bytes_total", "Bytes written to a front end's clients.", "front")
)

// total is of all reasons.
func total(dropped map[string]uint64) (n uint64) {
	for _, of := range dropped {
		n += of
	}
	return n
}

func collectFronts(st *daemonStats, gauge gaugeFunc, counter counterFunc) {
	type row struct {
		desc  *prometheus.Desc
		value uint64
	}
	collect := func(front string, live, owed int64, dropped map[string]uint64, rows ...row) {
		gauge(descFrontConnections, float64(live), front)
		gauge(descFrontOwed, float64(owed), front)
		for reason, n := range dropped {
			counter(descFrontDropped, n, front, reason)
		}
		for _, r := range rows {
			counter(r.desc, r.value, front)
		}
	}
	if s := st.RESP; s != nil {
		collect("resp", s.Connections, s.Owed, s.Dropped, row{descFrontTotal, s.ConnectionsTotal}, row{descFrontRefused, s.Refused},
			row{descFrontLogins, s.LoginsRefused}, row{descFrontRequests, s.Commands}, row{descFrontErrors, s.Errors}, row{descFrontMalformed, s.Malformed},
			row{descFrontHits, s.Hits}, row{descFrontMisses, s.Misses}, row{descFrontStored, s.Stored}, row{descFrontHungUp, s.HungUp},
			row{descFrontRead, s.BytesRead}, row{descFrontWritten, s.BytesWritten})
	}
	if s := st.LM; s != nil {
		collect("lm", s.Connections, s.Owed, s.Dropped, row{descFrontTotal, s.ConnectionsTotal}, row{descFrontRefused, s.Refused},
			row{descFrontRequests, s.Requests}, row{descFrontErrors, total(s.Dropped)}, row{descFrontMalformed, s.Malformed},
			row{descFrontHits, s.Hits}, row{descFrontMisses, s.Misses}, row{descFrontStored, s.Stored},
			row{descFrontRead, s.BytesRead}, row{descFrontWritten, s.BytesWritten})
	}
}
