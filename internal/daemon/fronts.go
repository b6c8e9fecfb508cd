package daemon

import (
	"cmp"
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

// refused says in the log who was, if there is an error, and returns it.
func refused(log *zerolog.Logger, conn net.Conn, err error) error {
	if err != nil {
		at := strings.TrimSuffix(conn.LocalAddr().String(), "~") // as before it was moved into place
		log.Warn().Err(err).Str("address", at).Msg("a client of a front end was refused")
	}
	return err
}

func (d *Daemon) makeFronts() {
	f := &d.fronts
	if len(f.respAt) == 0 {
		return
	}
	f.store = resp.NewStore(resp.StoreOptions{
		Tiers: d.store, LoadTimeout: d.cfg.Prefetch.Deadline, Log: d.log,
		ShelterBytes: int64(shelterShare * float64(d.arena.Stats().CapacityBytes)),
	})
	refusals := d.log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})
	f.resp = resp.New(resp.Options{
		Store: f.store, NewOwner: d.store.Leases.NewOwner, CloseOwner: d.store.Leases.CloseOwner,
		Memory: func() resp.Memory {
			st := d.cpu.Stats()
			return resp.Memory{UsedBytes: st.UsedBytes, CapacityBytes: st.CapacityBytes, Policy: st.Policy}
		},
		Admit: func(conn net.Conn) (access.Peer, error) {
			peer, err := d.server.Admit(config.FrontRESP, conn)
			return peer, refused(&refusals, conn, err)
		},
		Enter: func(conn net.Conn) (func(), error) {
			leave, err := d.server.Enter(conn)
			return leave, refused(&refusals, conn, err)
		},
		Settings: respSettings(&d.cfg.Listen, f.password), Version: human.VersionText(),
		Budget: d.budget, Limits: resp.Limits{StallTimeout: stallTimeout},
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
		log.Info().Str("address", cmp.Or(e.path, e.Addr().String())).Msg("serving Redis clients")
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
