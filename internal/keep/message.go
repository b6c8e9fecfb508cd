package keep

// Version is that of the messages. A daemon and a keeper with different ones cannot work
// together.
const Version = 2

// Step names a message.
type Step string

// The messages.
const (
	Take   Step = "take"   // what is kept
	Keep   Step = "keep"   // what comes along, or nothing, in place of what is kept
	Taken  Step = "taken"  // the answer to both
	Failed Step = "failed" // in the place of any: it ends here
)

// Message is one step. A field that the step does not have is empty.
type Message struct {
	Step    Step   `json:"step"`
	Version int    `json:"version"`
	Program string `json:"program,omitempty"` // of take and keep: the version, for people
	Why     string `json:"why,omitempty"`     // of failed, for people

	Names []string `json:"names,omitempty"` // of keep and taken: of the descriptors with it

	// Of keep: the daemon has another connection, which does not answer. Of taken: another
	// daemon has the files, and nothing was done.
	Over bool `json:"over,omitempty"`
	Busy bool `json:"busy,omitempty"`
}
