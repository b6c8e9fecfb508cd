package admin

import "time"

// None is a request, or the query of a GET, that says nothing.
type None struct{}

// Version is the answer of GET /v1/version.
type Version struct {
	Version string   `json:"version"` // of the daemon
	Calls   []string `json:"calls"`   // method and path of each
}

// Config is the configuration that is in force, and what became of reloads.
type Config struct {
	File         string    `json:"file"` // that reloads read; "" = the daemon was given none
	Loaded       time.Time `json:"loaded"`
	Reloads      uint64    `json:"reloads"`
	ReloadsBad   uint64    `json:"reloads_failed"`
	LastReloadOK bool      `json:"last_reload_ok"`
	NeedsRestart []Waiting `json:"needs_restart"`
	// Running is the whole configuration as a file, without what waits for a
	// restart.
	Running string `json:"running,omitempty"`
}

// Waiting is a key whose value in the file takes a restart.
type Waiting struct {
	Key     string `json:"key"`
	Running string `json:"running"`
	File    string `json:"file"`
}

// Pins is the pins, and the connections that hold something.
type Pins struct {
	Pins    []Pin    `json:"pins"`    // by name, connection and space
	Holders []Holder `json:"holders"` // by age
	LeftOut int      `json:"left_out"`
}

// Pin is what one connection protects of one space under one name.
type Pin struct {
	Name           string  `json:"name"`
	Space          string  `json:"space"`
	Connection     uint64  `json:"connection"`
	Chunks         int     `json:"chunks"`
	Bytes          uint64  `json:"bytes"`
	ExpiresSeconds float64 `json:"expires_seconds"`
}

// Holder is a connection that holds something.
type Holder struct {
	Connection uint64 `json:"connection"`
	UID        uint32 `json:"uid"`
	Name       string `json:"name"`
	LeaseBytes uint64 `json:"lease_bytes"`
	PinBytes   uint64 `json:"pin_bytes"`
}

// RevokeRequest names pins or a connection: one of the three.
type RevokeRequest struct {
	Name       *string `json:"name,omitempty"` // the pins of a name
	AllPins    bool    `json:"all_pins,omitempty"`
	Connection *uint64 `json:"connection,omitempty"` // all that it holds
}

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

// Space is a space, what is stored of it, and how many connections have it open.
type Space struct {
	Space       string  `json:"space"`  // its id, 32 hex digits
	Chunks      int64   `json:"chunks"` // known, in any tier
	HotBytes    int64   `json:"dram_bytes"`
	DiskBytes   int64   `json:"disk_bytes"`
	MaxAge      float64 `json:"max_age_seconds,omitempty"` // of its chunks, while it is open; 0: any
	Connections uint32  `json:"connections"`               // that have it open
	Front       string  `json:"front,omitempty"`           // the front end whose values these are
	Opened      *Opened `json:"opened"`                    // null: not since the daemon started
}

// Opened is as what a space was opened, but for its salt.
type Opened struct {
	Model       string            `json:"model"`
	Revision    string            `json:"revision,omitempty"`
	LoRA        string            `json:"lora,omitempty"`
	World       int               `json:"world"`
	Worker      int               `json:"worker"`
	DType       string            `json:"dtype"`
	ChunkTokens int               `json:"chunk_tokens"`
	Method      string            `json:"method"`
	Group       string            `json:"group,omitempty"`
	Salted      bool              `json:"salted"`
	Tags        map[string]string `json:"tags,omitempty"`
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
type Holdings struct {
	Chunks uint64            `json:"chunks"` // in any tier
	Tiers  map[string]uint64 `json:"tiers"`  // of those, in each tier there is
	// Missing is the chunks in DRAM or on disk that are not known to be in the bucket, but
	// for the Local ones, which never go there.
	Missing      uint64 `json:"missing_chunks"`
	MissingBytes uint64 `json:"missing_bytes"`
	Local        uint64 `json:"local_chunks"`
}

// UploadRequest asks for one step of an upload.
type UploadRequest struct {
	After string `json:"after,omitempty"` // Next of the step before; "" at first
}

// Uploaded is how the chunks of one step fared.
type Uploaded struct {
	Chunks      uint64 `json:"chunks"`
	Bytes       uint64 `json:"bytes"`
	Present     uint64 `json:"present_chunks"` // the bucket had them already
	Gone        uint64 `json:"gone_chunks"`    // deleted, expired or wrong by then
	Failed      uint64 `json:"failed_chunks"`
	FailedBytes uint64 `json:"failed_bytes"`
	Next        string `json:"next"` // where to go on; "" = this was the last step
}

// ClearRequest names the tiers in which everything is forgotten.
type ClearRequest struct {
	Tiers []string `json:"tiers"`
}

// PurgeRequest asks for one step of a purge.
type PurgeRequest struct {
	Space  string `json:"space"`           // its id, 32 hex digits
	After  string `json:"after,omitempty"` // Next of the step before; "" at first
	DryRun bool   `json:"dry_run,omitempty"`
}

// Purged is what one step of a purge deleted, or only counted.
type Purged struct {
	Known uint64 `json:"known_chunks"`  // that the daemon knew of, in any tier
	Found uint64 `json:"bucket_chunks"` // that were in the bucket besides; of a dry run those that are known too
	Bytes uint64 `json:"bucket_bytes"`  // theirs
	Next  string `json:"next"`          // where to go on; "" = this was the last step
}

// ScrubRequest bounds a scrub.
type ScrubRequest struct {
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"` // 0 = as fast as the disk allows
}

// Scrubbed is what a scrub found.
type Scrubbed struct {
	Chunks uint64 `json:"chunks"`     // read to the end
	Bytes  uint64 `json:"bytes"`      // of payload
	Wrong  uint64 `json:"wrong"`      // of those, deleted because they did not have their checksum
	Failed uint64 `json:"unreadable"` // could not be read; they stay
}

// Rebuilt is what a rebuild of the disk tier's index has done so far.
type Rebuilt struct {
	Running    bool    `json:"running"`
	Bytes      uint64  `json:"bytes"` // of the segment files, looked at
	TotalBytes uint64  `json:"total_bytes"`
	Headers    uint64  `json:"headers"`  // of payloads, read
	Restored   uint64  `json:"restored"` // chunks that the database did not have
	Dropped    uint64  `json:"dropped"`  // chunks that are wrong, or that it had and that were freed
	Resealed   uint64  `json:"headers_rewritten"`
	Seconds    float64 `json:"seconds"` // since its begin, or what it took
}

// Error is a call that was refused or failed. It is the body of each reply whose
// status is not 200.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"error"` // what is wrong
	Do   string `json:"do"`    // and what to do about it
}

// Error implements error.
func (e *Error) Error() string { return e.Text + "; " + e.Do }
