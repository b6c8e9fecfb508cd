package config

// Events is how routers are told what the daemon has.
type Events struct {
	// Tell what the tiers come to have and lose to clients that ask for it. See
	// [events.md](events.md).
	Enabled bool `yaml:"enabled"`
	// How many batches can be asked for again.
	Batches int `yaml:"batches" range:"1..1048576"`
}
