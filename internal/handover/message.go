package handover

// Version is that of the messages. Two processes with different ones cannot follow each
// other.
const Version = 1

// Step names a message.
type Step string

// The messages, in their order.
const (
	Hello    Step = "hello"
	Offer    Step = "offer"
	Ready    Step = "ready"
	Yours    Step = "yours"
	Prepared Step = "prepared"
	Go       Step = "go"
	Serving  Step = "serving"
	Failed   Step = "failed" // in the place of any: it ends here
)

// The messages of a daemon and a keeper of descriptors, which see package keep.
const (
	Take  Step = "take"  // what is kept
	Keep  Step = "keep"  // what comes along, or nothing, in place of what is kept
	Taken Step = "taken" // the answer to both
)

// Message is one step. A field that the step does not have is empty.
type Message struct {
	Step    Step   `json:"step"`
	Version int    `json:"version"`
	Why     string `json:"why,omitempty"`     // of failed, for people
	Program string `json:"program,omitempty"` // of hello and offer: the version, for people

	// Of offer. The descriptors with it are the arena's, writable and for clients, and
	// those of the addresses in their order.
	Arena     Arena    `json:"arena,omitzero"`
	Addresses []string `json:"addresses,omitempty"`

	// Of yours: entries of the directory, which is the descriptor with it.
	Entries int `json:"entries,omitempty"`

	// Of keep: the daemon takes over from the one that has what is kept. Of taken: another
	// daemon has it, and nothing was done.
	Over bool `json:"over,omitempty"`
	Busy bool `json:"busy,omitempty"`

	// Of prepared: the addresses that the successor listens on.
	Uses []string `json:"uses,omitempty"`
}

// Arena is what a successor must be configured with too.
type Arena struct {
	Bytes  int64 `json:"bytes"`
	Direct bool  `json:"direct"`
}
