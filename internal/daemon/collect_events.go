package daemon

import "github.com/kvstored/kvstored/internal/events"

var (
	descEventsNoted   = desc("events_changes_total", "Changes of tiers that were noted to be told (events).")
	descEventsDropped = desc("events_dropped_changes_total", "Changes for which there was no room; cleared is told then, and all that is there.")
	descEventsAgain   = desc("events_restarts_total", "Times that all was told again because of that.")
	descEventsBatches = desc("events_batches_total", "Batches of changes.")
)

// collectEvents exports the numbers of events, where they are on.
func collectEvents(e *events.Stats, counter counterFunc) {
	if e == nil {
		return
	}
	counter(descEventsNoted, e.Noted)
	counter(descEventsDropped, e.Dropped)
	counter(descEventsAgain, e.Restarts)
	counter(descEventsBatches, e.Next)
}
