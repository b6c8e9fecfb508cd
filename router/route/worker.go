package route

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/feed"
	"github.com/kvstored/kvstored/router/index"
	"github.com/kvstored/kvstored/router/pick"
	"github.com/kvstored/kvstored/router/reach"
)

// What engines a worker can have.
const (
	EngineVLLM   = "vllm"
	EngineSGLang = "sglang"
)

// Post stands for an endpoint where events come by HTTP.
const Post = "post"

// defaultTTL is for workers that tell nothing: prompts that they were sent count as
// there for so long.
const defaultTTL = 5 * time.Minute

// Worker is an engine to which requests can go, as it is registered.
type Worker struct {
	ID     string `json:"id"`
	Rank   uint32 `json:"rank,omitempty"` // data-parallel rank
	Model  string `json:"model"`
	Tenant string `json:"tenant,omitempty"`
	URL    string `json:"url,omitempty"` // told to callers as it is

	// Where the engine publishes events, tcp://host:port or ipc:///path; "post": they
	// are posted; empty: it tells nothing, and prompts that it was sent count as there.
	Events string `json:"events,omitempty"`
	Replay string `json:"replay,omitempty"`
	Topic  string `json:"topic,omitempty"`
	Engine string `json:"engine,omitempty"` // vllm, the default, or sglang
	Scheme string `json:"scheme,omitempty"` // equal for engines that hash blocks alike

	// The kvstored beside it: the path of its socket, or where it publishes events.
	Kvstored       string `json:"kvstored,omitempty"`
	KvstoredReplay string `json:"kvstored_replay,omitempty"`

	// TTLSeconds is how long a block counts that is not told again; 0: for ever,
	// and five minutes for a worker that tells nothing.
	TTLSeconds int `json:"ttl_seconds,omitempty"`

	// Speeds in tokens a second; 0: as of pick.DefaultSpeeds, below 0: never loaded.
	Prefill    float64 `json:"prefill,omitempty"`
	LoadCPU    float64 `json:"load_cpu,omitempty"`
	LoadDisk   float64 `json:"load_disk,omitempty"`
	LoadShared float64 `json:"load_shared,omitempty"`
}

func (w *Worker) name() index.Worker { return index.Worker{ID: w.ID, Rank: w.Rank} }

// speeds are those given, and defaults.
func (w *Worker) speeds() (pick.Speeds, error) {
	s := pick.DefaultSpeeds()
	s.Prefill = cmp.Or(w.Prefill, s.Prefill)
	for m, given := range map[index.Medium]float64{index.CPU: w.LoadCPU, index.Disk: w.LoadDisk, index.Shared: w.LoadShared} {
		s.Load[m] = max(cmp.Or(given, s.Load[m]), 0)
	}
	return s, s.Check()
}

// endpoints are the places that the worker is heard from.
func (w *Worker) endpoints() []string {
	var all []string
	for _, e := range []string{w.Events, w.Replay, w.Kvstored, w.KvstoredReplay} {
		if e != "" && e != Post {
			all = append(all, e)
		}
	}
	return all
}

// check reports the first thing that is wrong with a worker by itself.
func (w *Worker) check(m *feed.Model, a *reach.Allow) error {
	for _, text := range []string{w.Model, w.Tenant, w.URL, w.Topic, w.Scheme, w.Events, w.Replay, w.Kvstored, w.KvstoredReplay} {
		if len(text) > maxText {
			return refuse(ErrRequest, "a text of %d bytes; use at most %d", len(text), maxText)
		}
	}
	if w.Engine != "" && w.Engine != EngineVLLM && w.Engine != EngineSGLang {
		return refuse(ErrRequest, "engine %.40q; use vllm or sglang", w.Engine)
	}
	if w.TTLSeconds < 0 || w.TTLSeconds > int(100*365*24*time.Hour/time.Second) {
		return refuse(ErrRequest, "ttl_seconds is %d; use 0, or up to 100 years", w.TTLSeconds)
	}
	if err := w.checkSources(m); err != nil {
		return err
	}
	for _, e := range w.endpoints() {
		if err := a.Check(e); err != nil {
			return err
		}
	}
	return nil
}

// checkSources wants sources that fit each other, and the model.
func (w *Worker) checkSources(m *feed.Model) error {
	engine := w.Events != "" || w.Kvstored == ""
	switch {
	case w.Replay != "" && (w.Events == "" || w.Events == Post):
		return refuse(ErrRequest, "replay without an endpoint in events; set it too, or take replay out")
	case w.KvstoredReplay != "" && (w.Kvstored == "" || w.Kvstored[0] == '/'):
		return refuse(ErrRequest, "kvstored_replay is for a daemon that publishes over ZeroMQ; the socket of a daemon needs none")
	case w.Kvstored == Post:
		return refuse(ErrRequest, "kvstored %q; write the path of its socket, or where it publishes", Post)
	case engine && m.BlockTokens == 0:
		return refuse(index.ErrBlockTokens, "model %.64q has block_tokens 0, so that no engine's events are counted; set it, or register the worker with kvstored alone", m.Name)
	case w.Kvstored != "" && m.ChunkTokens == 0:
		return refuse(index.ErrBlockTokens, "model %.64q has chunk_tokens 0, so that no kvstored is counted; set it", m.Name)
	}
	return nil
}

// maxText bounds each text of a request.
const maxText = 1024

// member is a worker that is registered.
type member struct {
	Worker
	model  *feed.Model
	engine *feed.Publisher // nil: it tells nothing
	daemon *feed.Publisher // nil: there is no kvstored
	since  time.Time

	speeds  pick.Speeds // Service.mu
	leaving bool        // Service.mu

	cancel  context.CancelFunc
	running sync.WaitGroup // of the sources
}

// publishers are the sources that there are.
func (w *member) publishers() []*feed.Publisher {
	var all []*feed.Publisher
	for _, p := range []*feed.Publisher{w.engine, w.daemon} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// told reports whether the worker tells events.
func (w *member) told() bool { return w.engine != nil || w.daemon != nil }

// newMember makes the sources of a worker; start runs them.
func (s *Service) newMember(w Worker, m *feed.Model) *member {
	o := s.feed
	from := feed.Worker{Worker: w.name(), Tenant: w.Tenant, Dialect: event.VLLM}
	if w.Engine == EngineSGLang {
		from.Dialect = event.SGLang
	}
	one := &member{Worker: w, model: m, since: s.now()}
	if w.Events != "" {
		one.engine = feed.New(o, from, m)
	}
	if w.Kvstored != "" {
		from.Dialect, from.Chunks = event.VLLM, true
		one.daemon = feed.New(o, from, m)
	}
	return one
}

// start runs the sources until ctx ends or the worker leaves.
func (s *Service) start(ctx context.Context, w *member) {
	ctx, w.cancel = context.WithCancel(ctx)
	log := s.o.Log.With().Str("worker", w.name().String()).Logger()
	run := func(source func(context.Context) error) {
		w.running.Go(func() { _ = source(ctx) }) // it ends with ctx only
	}
	if w.engine != nil && w.Events != Post {
		run((&feed.Subscriber{Publisher: w.engine, Events: w.Events, Replay: w.Replay, Topic: w.Topic, Room: s.messages, Log: log}).Run)
	}
	switch {
	case w.Kvstored == "":
	case w.Kvstored[0] == '/':
		run((&feed.Stream{Publisher: w.daemon, Socket: w.Kvstored, Log: log}).Run)
	default:
		run((&feed.Subscriber{Publisher: w.daemon, Events: w.Kvstored, Replay: w.KvstoredReplay, Snapshots: true, Room: s.messages, Log: log}).Run)
	}
}
