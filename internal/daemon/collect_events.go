package daemon

var (
	descEventsNoted   = desc("events_changes_total", "Changes of tiers that were noted to be told (events).")
	descEventsDropped = desc("events_dropped_changes_total", "Changes for which there was no room; cleared is told then, and all that is there.")
	descEventsAgain   = desc("events_restarts_total", "Times that all was told again because of that.")
	descEventsBatches = desc("events_batches_total", "Batches of changes.")
	descEventsSubs    = desc("events_subscribers", "Subscribers over ZeroMQ.")
	descEventsSent    = desc("events_messages_total", "Messages to subscribers over ZeroMQ, by what came of them: sent, or missed by one that was too slow.", "result")
)

// collectEvents exports the numbers of events, where they are on.
func collectEvents(e *EventStats, gauge gaugeFunc, counter counterFunc) {
	if e == nil {
		return
	}
	counter(descEventsNoted, e.Noted)
	counter(descEventsDropped, e.Dropped)
	counter(descEventsAgain, e.Restarts)
	counter(descEventsBatches, e.Next)
	gauge(descEventsSubs, float64(e.Subscribers))
	counter(descEventsSent, e.Sent, "sent")
	counter(descEventsSent, e.Missed, "missed")
}
