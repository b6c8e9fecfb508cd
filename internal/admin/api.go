package admin

import (
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/tier"
)

// None is a request, or the query of a GET, that says nothing.
type None struct{}

// Version is the answer of GET /v1/version.
type Version struct {
	Version string   `json:"version"` // of the daemon
	Calls   []string `json:"calls"`   // method and path of each
}

// Config is the configuration that is in force, and what became of reloads.
type Config struct {
	File         string          `json:"file"` // that reloads read; "" = the daemon was given none
	Loaded       time.Time       `json:"loaded"`
	Reloads      uint64          `json:"reloads"`
	ReloadsBad   uint64          `json:"reloads_failed"`
	LastReloadOK bool            `json:"last_reload_ok"`
	NeedsRestart []config.Change `json:"needs_restart"`
	// Running is the whole configuration as a file, without what waits for a
	// restart.
	Running string `json:"running,omitempty"`
	// Policies are those that the tiers have now.
	Policies *Policies `json:"policies,omitempty"`
}

// Claims are the chunks that are kept from eviction by name, and the connections that hold some.
type Claims struct {
	Pins     []hint.Held `json:"pins"`     // by name, connection and space
	Holders  []Holder    `json:"holders"`  // by age
	Retained []hint.Held `json:"retained"` // most bytes first
	LeftOut  int         `json:"left_out"`
}

// What the server of clients tells of them, as it is answered.
type (
	Holder    = server.Holder
	ClientUse = server.Client
	Lease     = server.Lease
	Missed    = server.Miss
	Differs   = server.Difference
	Space     = server.SpaceUse
	Opened    = server.Opened
)

// Chunks is how many chunks a call freed or forgot.
type Chunks struct {
	Chunks uint64 `json:"chunks"`
}

// SpacesRequest asks for a page of the spaces.
type SpacesRequest struct {
	After string `json:"after,omitempty"` // Next of the page before; "" at first
}

// Spaces is a page of the spaces, by id.
type Spaces struct {
	Spaces []Space `json:"spaces"`
	Next   string  `json:"next"` // where to go on; "" = this was the last page
}

// PolicyRequest replaces the policy of a tier.
type PolicyRequest struct {
	Tier   string `json:"tier"`
	Policy string `json:"policy"`
}

// Policies are the policies of eviction.
type Policies struct {
	Tiers map[string]string `json:"tiers"`     // of each tier that evicts
	Names []string          `json:"available"` // all there are
}

// Holdings is how much of what the daemon knows each tier has.
type Holdings = store.Holdings

// UploadRequest asks for one step of an upload, or for a count of what all would upload.
type UploadRequest struct {
	After  string `json:"after,omitempty"` // Next of the step before; "" at first
	DryRun bool   `json:"dry_run,omitempty"`
}

// Uploaded is how the chunks of one step fared.
type Uploaded struct {
	store.Uploaded
	Next string `json:"next"` // where to go on; "" = this was the last step

	Holdings *Holdings `json:"holdings,omitempty"` // of a dry run
}

// ForgetRequest names the tiers in which everything is forgotten, or asks for one step of
// forgetting a space, or only that it is distrusted.
type ForgetRequest struct {
	Tiers    []string `json:"tiers,omitempty"`
	Space    string   `json:"space,omitempty"`    // its id, 32 hex digits
	Distrust bool     `json:"distrust,omitempty"` // its chunks stay, and are found again
	After    string   `json:"after,omitempty"`    // Next of the step before; "" at first
	DryRun   bool     `json:"dry_run,omitempty"`
}

// Forgotten counts chunks that were forgotten, or would be.
type Forgotten struct {
	Chunks uint64            `json:"chunks"`                // that the daemon knew of
	Tiers  map[string]uint64 `json:"tier_chunks,omitempty"` // of a dry run of tiers
	Found  uint64            `json:"bucket_chunks"`         // of a space, in the bucket besides; of a dry run those that are known too
	Bytes  uint64            `json:"bucket_bytes"`          // theirs
	Next   string            `json:"next"`                  // where to go on; "" = this was the last step
}

// ScrubRequest bounds a scrub.
type ScrubRequest struct {
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"` // 0 = as fast as the disk allows
}

// Scrubbed is what a scrub found.
type Scrubbed = tier.Scrubbed

// Error is a call that was refused or failed. It is the body of each reply whose
// status is not 200.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"error"` // what is wrong
	Do   string `json:"do"`    // and what to do about it
}

// Error implements error.
func (e *Error) Error() string { return e.Text + "; " + e.Do }
