package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	daemonconfig "github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/router/config"
	"github.com/kvstored/kvstored/router/feed"
	"github.com/kvstored/kvstored/router/reach"
	"github.com/kvstored/kvstored/router/route"
)

func serveCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve [FILE]",
		Short: "Say which of several engines a request should go to",
		Long: `Follow the KV events of engines and of the daemons beside them, and answer over
HTTP which engine has how much of a prompt, and which one is expected to give the
first token first. It forwards no request. router/docs/reference.md describes the calls,
and router/docs/configuration.md the file. It runs until SIGTERM or SIGINT.`,
		Example: `  kvstored-router serve --config router.yaml
  curl -s localhost:9465/v1/select -d '{"model": "llama", "tokens": [1, 2, 3]}'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				path = args[0]
			}
			if path == "" {
				return errors.New("no configuration; name a file, which says what models there are")
			}
			cfg, err := config.Load(path, os.Environ())
			if err != nil { // one that cannot be read is as invalid as one that is wrong
				return &exitError{exitConfig, err}
			}
			return runRouter(cmd.Context(), &cfg)
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", os.Getenv("KVSTORED_CONFIG"), "configuration file; $KVSTORED_CONFIG sets the default")
	return cmd
}

func runRouter(ctx context.Context, cfg *config.Config) error {
	r := &cfg.Route
	switch {
	case len(r.Models) == 0:
		return &exitError{exitConfig, errors.New("route.models is empty; name the models that are served, such as [{name: llama, block_tokens: 16}]")}
	case r.Listen == "" && r.Socket == "":
		return &exitError{exitConfig, errors.New("route.listen and route.socket are empty, so that nobody could ask; set one of them")}
	}
	o, err := routeOptions(r)
	if err != nil {
		return &exitError{exitConfig, err}
	}
	log, lines := startLog(cfg.Log)
	defer lines.Close()
	o.Log = log
	if names := daemonconfig.PassedOver(os.Environ()); len(names) > 0 {
		o.Log.Warn().Strs("names", names).Msg("variables that are no settings are passed over")
	}
	s, err := route.New(o)
	if err != nil {
		return &exitError{exitConfig, err}
	}
	running, ctx := errgroup.WithContext(ctx)
	for _, at := range []struct {
		key, addr string
		hosts     []string
	}{{"route.listen", r.Listen, r.OwnHosts()}, {"route.socket", r.Socket, nil}} {
		if at.addr == "" {
			continue
		}
		l, err := listen(at.key, at.addr, r.Mode, o.Log)
		if err != nil {
			return failed(err)
		}
		running.Go(func() error { return s.Serve(ctx, l, at.hosts) })
	}
	running.Go(func() error { return s.Run(ctx) })
	return failed(running.Wait())
}

// blockHashes leads from the configuration's words.
var blockHashes = map[string]feed.BlockHash{"dynamo": feed.Dynamo, "dynamo-unseeded": feed.DynamoUnseeded, "dynamo-eagle": feed.DynamoEagle}

// routeOptions are a configuration as the service has it.
func routeOptions(r *config.Route) (o route.Options, err error) {
	o = route.Options{
		Index: int64(r.Memory), MaxWorkers: r.MaxWorkers, Blocks: r.WorkerBlocks, Temperature: r.Temperature,
		Reservation: r.Reservation, Grace: r.Grace, Silence: r.Silence, Closed: !config.OnlyHere(r.Listen),
	}
	if o.Token, err = daemonconfig.ReadSecret("route.token_file", r.TokenFile); err != nil {
		return o, err
	}
	if o.Allow, err = reach.Parse(r.Allow); err != nil {
		return o, err
	}
	for i, m := range r.Models {
		groups, err := feed.ParseGroups(m.Groups)
		if err != nil {
			return o, fmt.Errorf("route.models[%d].groups: %w", i, err)
		}
		o.Models = append(o.Models, feed.Model{
			Name: m.Name, BlockTokens: m.BlockTokens, Groups: groups, BlockHash: blockHashes[m.BlockHash],
			ChunkTokens: m.ChunkTokens, ChunkHash: key.Method(m.ChunkHash),
		})
	}
	for _, w := range r.Workers {
		o.Workers = append(o.Workers, route.Worker{
			ID: w.ID, Rank: w.Rank, Model: w.Model, Tenant: w.Tenant, URL: w.URL,
			Events: w.Events, Replay: w.Replay, Topic: w.Topic, Engine: w.Engine, Scheme: w.Scheme,
			Kvstored: w.Kvstored, KvstoredReplay: w.KvstoredReplay, TTLSeconds: int(w.TTL / time.Second),
			Prefill: w.Prefill, LoadCPU: w.LoadCPU, LoadDisk: w.LoadDisk, LoadShared: w.LoadShared,
		})
	}
	return o, nil
}
