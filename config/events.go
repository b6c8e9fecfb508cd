package config

import "path/filepath"

// Events is how routers are told what the daemon has.
type Events struct {
	// Tell what the tiers come to have and lose: to clients that ask for it, on the
	// socket, and over ZeroMQ where publish says so. See [events.md](events.md).
	Enabled bool `yaml:"enabled"`
	// Where ZeroMQ subscribers connect: the path of a socket or host:port; "" is
	// nowhere. It asks for no password, and tells of all spaces.
	Publish string `yaml:"publish"`
	// Where ZeroMQ clients ask for batches that they have missed, or for a snapshot.
	Replay string `yaml:"replay"`
	// Let publish and replay be addresses that other machines reach.
	Open bool `yaml:"open"`
	// Topic of the messages of publish.
	Topic string `yaml:"topic"`
	// Tell the tokens of chunks too over ZeroMQ: they are the users' text. Known are
	// those of prompts that came as tokens since the daemon started.
	Tokens bool `yaml:"tokens"`
	// How many batches can be asked for again.
	Batches int `yaml:"batches" range:"1..1048576"`
}

func (c *checker) events() {
	e := &c.Events
	c.between("events.batches", e.Batches, 1, 1<<20)
	if len(e.Topic) > 128 {
		c.fail("events.topic", "%d bytes; use at most 128", len(e.Topic))
	}
	for _, at := range []struct{ path, addr string }{{"events.publish", e.Publish}, {"events.replay", e.Replay}} {
		switch {
		case at.addr == "":
		case !e.Enabled:
			c.fail(at.path, "events are off; set events.enabled to true, or take it out")
		case !c.endpoint(at.path, at.addr) && !e.Open && c.meant("events.open"):
			c.fail(at.path, "%s is open to other machines, and asks for no password; use 127.0.0.1, or set events.open to true where only routers reach it", filepath.Clean(at.addr))
		}
	}
	if e.Replay != "" && e.Publish == "" {
		c.fail("events.replay", "there is nothing to miss without events.publish; set it too, or take replay out")
	}
	if e.Tokens && e.Publish == "" {
		c.fail("events.tokens", "tokens are told over ZeroMQ only; set events.publish, or take tokens out")
	}
}
