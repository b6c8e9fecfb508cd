package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/kvstored/kvstored/bench/measure"
)

// Those that are no rivals. Ours is the measure of the ratios and always run, as is the
// echo: what any round trip between two Python processes takes here.
const (
	ours      = "kvstored"
	oursRedis = "kvstored-resp"
	echo      = "echo"
)

// rival is a system: how its servers are started, and how its client is.
type rival struct {
	name    string // of its column
	client  string // in clients.py and install.py
	servers func(p *place) []measure.Server
	args    func(p *place) []string // of the client
}

// place is where a rival's processes meet: all that start needs to know.
type place struct {
	dir, binary, source string
	python              string         // of the client
	ports               map[string]int // by name, each as it is first asked for
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

// port is a free one of this machine; the same one for the same name.
func (p *place) port(name string) string {
	if p.ports[name] == 0 {
		p.ports[name], _ = measure.Port() // whoever wants a 0 says so
	}
	return strconv.Itoa(p.ports[name])
}

func (p *place) host(name string) string { return "127.0.0.1:" + p.port(name) }

var rivals = []rival{
	{ours, "kvstored", kvstoredServers, socketOf("kvstored.sock")},
	{"memcached", "memcached", func(p *place) []measure.Server {
		return []measure.Server{{At: p.path("memcached.sock"), Command: []string{"memcached", "-u", "root", "-s", p.path("memcached.sock"), "-m", "2048", "-I", "16m", "-t", "2"}}}
	}, socketOf("memcached.sock")},
	{"redis", "redis", func(p *place) []measure.Server {
		return []measure.Server{{At: p.path("redis.sock"), Command: []string{"redis-server", "--port", "0", "--unixsocket", p.path("redis.sock"), "--save", "", "--appendonly", "no", "--dir", p.dir}}}
	}, socketOf("redis.sock")},
	{oursRedis, "redis", kvstoredServers, socketOf("resp.sock")},
	{"mooncake", "mooncake", func(p *place) []measure.Server {
		return append(mooncakeMaster(p), measure.Server{At: p.path("mooncake.sock"), Command: []string{p.python, filepath.Join(p.source, "clients.py"), "mooncake", p.host("master"), "1073741824", p.path("mooncake.sock")}})
	}, func(p *place) []string { return []string{p.host("master")} }},
	{"mooncake-local", "mooncake", mooncakeMaster, func(p *place) []string { return []string{p.host("master"), "1073741824"} }},
	{"lmcache", "lmcache", lmcacheServers, func(p *place) []string { return []string{"tcp://" + p.host("rpc"), "http://" + p.host("http")} }},
	{echo, "echo", func(*place) []measure.Server { return nil }, func(*place) []string { return nil }},
}

func rivalNames() (names []string) {
	for _, r := range rivals {
		names = append(names, r.name)
	}
	return names
}

func socketOf(name string) func(p *place) []string {
	return func(p *place) []string { return []string{p.path(name)} }
}

const ourConfig = `
listen: {socket: %[1]s/kvstored.sock, resp: [%[1]s/resp.sock]}
admin: {listen: ""}
cpu: {capacity: 1GiB}
disk: {capacity: 0}
log: {level: warn}
`

func kvstoredServers(p *place) []measure.Server {
	file := p.path("kvstored.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, ourConfig, p.dir), 0o600); err != nil {
		file = err.Error() // the daemon cannot read it, and says so
	}
	return []measure.Server{{At: p.path("resp.sock"), Command: []string{p.binary, "serve", "--config", file}}}
}

func mooncakeMaster(p *place) []measure.Server {
	lib := filepath.Join(filepath.Dir(filepath.Dir(p.python)), "lib")
	found, _ := filepath.Glob(filepath.Join(lib, "python3*", "site-packages", "mooncake")) // the pattern is a good one
	if len(found) == 0 {
		found = []string{lib} // where the program is not: the error names it
	}
	master := []string{filepath.Join(found[0], "mooncake_master"), "--rpc_address=127.0.0.1", "--rpc_port=" + p.port("master"), "--metrics_port=" + p.port("metrics")}
	return []measure.Server{{At: p.host("master"), Command: master, Env: []string{"LD_LIBRARY_PATH=" + found[0]}}}
}

func lmcacheServers(p *place) []measure.Server {
	program := filepath.Join(filepath.Dir(p.python), "lmcache")
	return []measure.Server{{At: p.host("http"), Env: measure.LMCacheEnv, Command: []string{program, "server", "--host", "127.0.0.1", "--port", p.port("rpc"), "--http-port", p.port("http"),
		"--l1-size-gb", "1", "--no-l1-use-lazy", "--eviction-policy", "LRU", "--chunk-size", "256", "--supported-transfer-mode", "auto", "--shm-name", filepath.Base(p.dir)}}}
}

// start starts the servers of a rival in a folder of their own, and its client.
func (r *rival) start(ctx context.Context, p place, have *measure.Installed) (c *contender, err error) {
	if why := have.Missing[r.client]; why != "" {
		return nil, errors.New(why)
	}
	if p.dir, err = os.MkdirTemp(p.dir, "r"); err != nil {
		return nil, err
	}
	p.python, p.ports = have.Python[r.client], make(map[string]int)
	c = &contender{name: r.name}
	defer func() {
		if err != nil {
			c.processes.Stop()
		}
	}()
	for i, s := range r.servers(&p) {
		if err := c.processes.Serve(ctx, s, p.path(fmt.Sprintf("server%d.log", i))); err != nil {
			return nil, err
		}
	}
	command := append([]string{p.python, filepath.Join(p.source, "clients.py"), r.client}, r.args(&p)...)
	return c, c.connect(command, measure.LMCacheEnv, p.path("client.log"))
}
