package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/router/reach"
)

// Route is which worker a request should go to, and who may ask. See
// [README.md](../README.md).
type Route struct {
	// The host:port of its calls over HTTP; "" is nowhere. Calls that change
	// something take the token, and beyond this machine all do.
	Listen string `yaml:"listen"`
	// Host names under which that listener is asked, besides its addresses,
	// localhost and the name in listen.
	Hosts []string `yaml:"hosts,flow"`
	// Absolute path of a Unix socket for the same calls, which takes no token.
	Socket string `yaml:"socket"`
	// Permissions of that socket, in octal.
	Mode os.FileMode `yaml:"mode"`
	// File whose first line is the token.
	TokenFile string `yaml:"token_file"`
	// Where workers may be: addresses, networks, patterns of host names without a
	// port, and patterns of paths of sockets.
	Allow []string `yaml:"allow,flow"`
	// Memory of the index; beyond it the coldest blocks are forgotten.
	Memory config.Bytes `yaml:"memory" range:"1MiB.."`
	// Most workers at a time.
	MaxWorkers int `yaml:"max_workers" range:"1..65536"`
	// Most blocks that one worker may tell of, in all media; one that tells of more
	// is forgotten for a while.
	WorkerBlocks int `yaml:"worker_blocks" range:"1..67108864"`
	// By how many seconds a worker may be expected to be slower and still be chosen
	// often: 0 always takes the fastest.
	Temperature float64 `yaml:"temperature" range:"0..3600"`
	// After how long a reservation that was not freed ends by itself.
	Reservation time.Duration `yaml:"reservation" range:"1s.."`
	// How long a lost connection may last before what the worker has is forgotten.
	Grace time.Duration `yaml:"grace" range:"1s.."`
	// How long a worker may tell nothing though it has computed.
	Silence time.Duration `yaml:"silence" range:"1s.."`
	// The models that are served.
	Models []RouteModel `yaml:"models"`
	// The workers that are there from the start.
	Workers []RouteWorker `yaml:"workers"`
}

// RouteModel is one model of several workers.
type RouteModel struct {
	// As spaces of kvstored and requests name it.
	Name string `yaml:"name,omitempty"`
	// Tokens in a block of the engines; 0: none tells events.
	BlockTokens int `yaml:"block_tokens,omitempty" range:"0..1048576"`
	// How engines' blocks are named: as NVIDIA Dynamo does (seed 1337), the default,
	// or dynamo-unseeded. It matters to callers that ask by hashes. dynamo-eagle is for
	// SGLang with EAGLE, whose events have pairs of tokens.
	BlockHash string `yaml:"block_hash,omitempty" oneof:"dynamo,dynamo-unseeded,dynamo-eagle"`
	// Groups of layers of a hybrid model by the engine's numbers, such as
	// [full, window 1024, local 8192, state]: what each needs of a prefix, and of how many
	// tokens. None: blocks of groups that are not full are passed over.
	Groups []string `yaml:"groups,flow,omitempty"`
	// Tokens in a chunk of the daemons; 0: none is followed.
	ChunkTokens int `yaml:"chunk_tokens,omitempty" range:"0..65536"`
	// As chunk.hash of the daemons; given where engines hand over their own hashes.
	ChunkHash string `yaml:"chunk_hash,omitempty" oneof:"sha256,xxh64,given"`
}

// RouteWorker is an engine to which requests can go.
type RouteWorker struct {
	// Name, as answers have it.
	ID string `yaml:"id,omitempty"`
	// Data-parallel rank; each has its own endpoints.
	Rank uint32 `yaml:"rank,omitempty"`
	// One of route.models.
	Model string `yaml:"model,omitempty"`
	// Prompts of other tenants share nothing with it.
	Tenant string `yaml:"tenant,omitempty"`
	// Told to callers as it is.
	URL string `yaml:"url,omitempty"`
	// Where the engine publishes events, tcp://host:port or ipc:///path; post: they
	// come by HTTP; left out: it tells nothing, and prompts that it was sent count as there.
	Events string `yaml:"events,omitempty"`
	// Where it replays them.
	Replay string `yaml:"replay,omitempty"`
	// Beginning of their topics.
	Topic string `yaml:"topic,omitempty"`
	// Whose events they are.
	Engine string `yaml:"engine,omitempty" oneof:"vllm,sglang"`
	// A word that is equal for engines that hash blocks alike: one hash function, one
	// PYTHONHASHSEED.
	Scheme string `yaml:"scheme,omitempty"`
	// The kvstored beside the engine: the path of its socket, or where its bridge
	// publishes.
	Kvstored string `yaml:"kvstored,omitempty"`
	// Where its bridge replays, if kvstored is no socket.
	KvstoredReplay string `yaml:"kvstored_replay,omitempty"`
	// How long a block counts that is not told again, counted from the second in which
	// it was told last; left out: for ever, and 5m for a worker that tells nothing.
	TTL time.Duration `yaml:"ttl,omitempty" range:"0s.."`
	// Tokens a second that it computes; left out: 8000.
	Prefill float64 `yaml:"prefill,omitempty"`
	// Tokens a second that it loads from DRAM; left out: 200000, below 0: not loaded.
	LoadCPU float64 `yaml:"load_cpu,omitempty"`
	// Tokens a second that it loads from the disk; left out: 40000, below 0: not loaded.
	LoadDisk float64 `yaml:"load_disk,omitempty"`
	// Tokens a second that it loads from a bucket; left out: 10000, below 0: not loaded.
	LoadShared float64 `yaml:"load_shared,omitempty"`
}

// BlockHashes are the ways in which engines' blocks are named.
var BlockHashes = []string{"dynamo", "dynamo-unseeded", "dynamo-eagle"}

// route checks its keys. The service checks what takes more than the file.
func (c *checker) route() {
	r := &c.Route
	switch {
	case r.Listen == "":
	case strings.HasPrefix(r.Listen, "/"):
		c.fail("route.listen", "%q is a path; write host:port, and the path of a socket in route.socket", r.Listen)
	case !isHostPort(r.Listen):
		c.fail("route.listen", "%q is no address; write host:port such as 127.0.0.1:9465", r.Listen)
	case !OnlyHere(r.Listen) && r.TokenFile == "" && c.meant("route.token_file"):
		c.fail("route.listen", "%s is open to other machines; set route.token_file, or use 127.0.0.1", r.Listen)
	}
	c.absolute("route.socket", r.Socket)
	if n := len(r.Socket); n > maxSocketPath {
		c.fail("route.socket", "%d bytes are too long for a socket; use a path of at most %d", n, maxSocketPath)
	}
	if r.Mode&0o222 == 0 || r.Mode > 0o777 {
		c.fail("route.mode", "%04o lets nobody connect, which takes write permission; use 0660 or 0600", uint32(r.Mode))
	}
	c.absolute("route.token_file", r.TokenFile)
	if r.Memory < mib {
		c.fail("route.memory", "%v is too small; the least is %v", r.Memory, config.Bytes(mib))
	}
	c.between("route.max_workers", r.MaxWorkers, 1, 1<<16)
	c.between("route.worker_blocks", r.WorkerBlocks, 1, 1<<26)
	if !(r.Temperature >= 0 && r.Temperature <= 3600) {
		c.fail("route.temperature", "want seconds from 0 to 3600, not %v", r.Temperature)
	}
	for path, d := range map[string]time.Duration{"route.reservation": r.Reservation, "route.grace": r.Grace, "route.silence": r.Silence} {
		if d < time.Second {
			c.fail(path, "want a duration of 1s or more, not %v", d)
		}
	}
	c.routeModels()
	c.routeWorkers()
}

func (c *checker) routeModels() {
	seen := make(map[string]bool)
	for i, m := range c.Route.Models {
		path := fmt.Sprintf("route.models[%d]", i)
		switch {
		case m.Name == "":
			c.fail(path+".name", "is empty; write the model's name, as spaces and requests have it")
		case seen[m.Name]:
			c.fail(path+".name", "%q is there twice; name each model once", m.Name)
		}
		seen[m.Name] = true
		c.between(path+".block_tokens", m.BlockTokens, 0, 1<<20)
		c.between(path+".chunk_tokens", m.ChunkTokens, 0, 1<<16)
		if m.BlockTokens == 0 && m.ChunkTokens == 0 {
			c.fail(path+".block_tokens", "is 0, and chunk_tokens too; say how many tokens a block of the engines has, or a chunk of the daemons")
		}
		if m.BlockHash != "" {
			c.oneOf(path+".block_hash", m.BlockHash, BlockHashes...)
		}
		if m.ChunkHash != "" {
			c.oneOf(path+".chunk_hash", m.ChunkHash, config.HashSHA256, config.HashXXH64, "given")
		}
	}
}

// routeWorkers checks what the file alone can tell; the service checks the rest, as
// of a worker that is registered by a call.
func (c *checker) routeWorkers() {
	allow, err := reach.Parse(c.Route.Allow)
	if err != nil {
		c.fail("route.allow", "%v", err)
		return
	}
	type name struct {
		id   string
		rank uint32
	}
	seen := make(map[name]bool)
	for i, w := range c.Route.Workers {
		path := fmt.Sprintf("route.workers[%d]", i)
		if w.ID == "" {
			c.fail(path+".id", "is empty; write the name that answers are to have")
		} else if seen[name{w.ID, w.Rank}] {
			c.fail(path+".id", "%q is there twice; give each worker an id, or each rank its own", w.ID)
		}
		seen[name{w.ID, w.Rank}] = true
		if !slices.ContainsFunc(c.Route.Models, func(m RouteModel) bool { return m.Name == w.Model }) {
			c.fail(path+".model", "%q is none of route.models; add it there", w.Model)
		}
		if w.Engine != "" {
			c.oneOf(path+".engine", w.Engine, "vllm", "sglang")
		}
		for _, e := range []struct{ key, value string }{{"events", w.Events}, {"replay", w.Replay}, {"kvstored", w.Kvstored}, {"kvstored_replay", w.KvstoredReplay}} {
			if e.value == "" || e.key == "events" && e.value == "post" {
				continue
			}
			if err := allow.Check(e.value); err != nil {
				c.fail(path+"."+e.key, "%v", err)
			}
		}
		if w.TTL < 0 || w.TTL > 0 && w.TTL < time.Second {
			c.fail(path+".ttl", "want a duration of 1s or more, or none, not %v", w.TTL)
		}
	}
}

// OwnHosts are the host names, in lower case, under which route.listen is asked.
func (r *Route) OwnHosts() []string {
	return (&config.Admin{Listen: r.Listen, Hosts: r.Hosts}).OwnHosts()
}
