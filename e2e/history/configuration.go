package history

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/policy"
)

// configuration is something that a run can be told, by the flag of its name.
type configuration struct {
	name, what string
	always     bool // there is a run with it where no flag is given
	on         func(*conditions) *bool
}

// configurations are all. They combine.
var configurations = []configuration{
	{"aged", "half of the prompts are stored with an end within seconds", false, func(o *conditions) *bool { return &o.aged }},
	{"keeper", "serve --keeper has DRAM, which has room for all and which the end of a process leaves", true, func(o *conditions) *bool { return &o.keeper }},
	{"clock", "the daemon's wall clock is set by hand: anyhow while it runs, forward between its lives", false, func(o *conditions) *bool { return &o.clock }},
}

// leaseAge is short, so that leases are revoked under those who read for long.
const leaseAge = 150 * time.Millisecond

// setup is what a life of the daemon is configured with.
type setup struct {
	mode     string
	disk     config.Bytes // 0: room for all
	policies [2]string    // of DRAM, of the disk
}

var (
	modes    = []string{config.WriteThrough, config.WriteAuto}
	policies = policy.All()
)

// setupOf picks one; the mode and DRAM's policy take turns.
func setupOf(n int, rng *rand.Rand) setup {
	return setup{
		mode:     modes[n%len(modes)],
		policies: [2]string{policies[n%len(policies)], policies[rng.IntN(len(policies))]},
	}
}

// of makes a configuration that of the setup.
func (s setup) of(o conditions) func(*config.Config) {
	return func(c *config.Config) {
		c.CPU.Capacity, c.CPU.Policy = 16<<20, s.policies[0]
		c.Disk.Capacity, c.Disk.Policy = cmp.Or(s.disk, 2<<30), s.policies[1]
		c.Write.Mode = s.mode
		c.Lease.MaxAge = leaseAge
		c.Log.Level = "error"
		if o.keeper { // it keeps what is equal
			c.CPU.Keep, c.CPU.Capacity = true, 256<<20
		}
	}
}
