package daemon

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/internal/server"
)

// shelterShare is the part of the arena that keeps, for a moment, what Redis clients
// have only asked about.
const shelterShare = 0.1

// fronts is the front end for Redis clients.
type fronts struct {
	password string
	respAt   []endpoint // none: off
	store    *resp.Store
	resp     *resp.Server
}

// listenFronts takes the front end's addresses, before anything is served.
func (d *Daemon) listenFronts() (err error) {
	c, f := &d.cfg.Listen, &d.fronts
	if f.password, err = readPassword(c.RESPPasswordFile); err != nil {
		return err
	}
	for _, addr := range c.RESP {
		e, err := d.from.listenAt(c, "listen.resp", addr)
		if err != nil {
			return err
		}
		f.respAt = append(f.respAt, e)
	}
	return nil
}

// admission asks the server who may connect to the front end.
type admission struct {
	server *server.Server
	log    zerolog.Logger
}

// refused says in the log who was, and returns the error.
func (e *admission) refused(conn net.Conn, err error) error {
	if err != nil {
		at := strings.TrimSuffix(conn.LocalAddr().String(), "~") // as before it was moved into place
		e.log.Warn().Err(err).Str("address", at).Msg("a client of a front end was refused")
	}
	return err
}

func (e *admission) admit(conn net.Conn) (access.Peer, error) {
	peer, err := e.server.Admit(config.FrontRESP, conn)
	if err != nil {
		return nil, e.refused(conn, err)
	}
	return peer, nil
}

func (e *admission) enter(conn net.Conn) (func(), error) {
	leave, err := e.server.Enter(conn)
	return leave, e.refused(conn, err)
}

func (d *Daemon) makeFronts() {
	f := &d.fronts
	if len(f.respAt) == 0 {
		return
	}
	f.store = resp.NewStore(resp.StoreOptions{
		Stack: d.stack, LoadTimeout: d.cfg.Prefetch.Deadline, Log: d.log,
		ShelterBytes: int64(shelterShare * float64(d.arena.Stats().CapacityBytes)),
	})
	e := &admission{d.server, d.log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})}
	f.resp = resp.New(resp.Options{
		Store: f.store, NewOwner: d.stack.NewOwner, CloseOwner: d.stack.CloseOwner,
		Memory: func() resp.Memory {
			st := d.cpu.Stats()
			return resp.Memory{UsedBytes: st.UsedBytes, CapacityBytes: st.CapacityBytes, Policy: st.Policy}
		},
		Admit: e.admit, Enter: e.enter, Settings: respSettings(&d.cfg.Listen, f.password), Version: human.VersionText(),
		Budget: d.budget, Limits: resp.Limits{Connections: d.cfg.Limits.Connections, StallTimeout: stallTimeout},
		Log: d.log.With().Str("component", "resp").Logger(),
	})
}

// serve adds the front end to a group until ctx ends.
func (f *fronts) serve(ctx context.Context, g *errgroup.Group, log *zerolog.Logger) {
	if f.resp == nil {
		return
	}
	g.Go(func() error { return f.store.Run(ctx) })
	for _, e := range f.respAt {
		g.Go(func() error { return f.resp.Serve(ctx, e.Listener) })
		log.Info().Str("address", e.String()).Msg("serving Redis clients")
	}
}

// apply has the front end run with other settings from now on. The server has
// the user ids already.
func (f *fronts) apply(s *settings) {
	if f.resp == nil {
		return
	}
	f.store.SetLoadTimeout(s.loadTimeout)
	f.resp.Set(s.resp)
	f.resp.Recheck()
}

// stats adds the front end's counters if it is on.
func (f *fronts) stats(out *Stats) {
	if f.resp != nil {
		st := f.resp.Stats()
		out.RESP = &st
	}
}
