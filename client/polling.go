package client

import "github.com/kvstored/kvstored/internal/spin"

// PollingStats say how often the Clients of this process polled for a reply before
// they slept, with which outcome, and whether they do now.
type PollingStats = spin.Stats

// Polling returns the counts since the process began, of all its Clients.
func Polling() PollingStats { return spin.Read() }
