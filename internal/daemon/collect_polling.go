package daemon

import "github.com/kvstored/kvstored/internal/spin"

var (
	descPolls      = desc("socket_polls_total", "Waits for a client's next message that began with a poll, by what came of it: gained (the message came), vain, or cut short.", "result")
	descPollingOff = desc("socket_polling_off", "1 while no socket is polled, because that would be at another's cost.")
	descPollsOff   = desc("socket_polling_off_total", "Times that polling was switched off for some seconds: a poll lost the processor, other connections were active, or threads waited for processors (pressure).", "reason")
)

func collectPolling(s *spin.Stats, gauge gaugeFunc, counter counterFunc) {
	counter(descPolls, s.Gained, "gained")
	counter(descPolls, s.Vain, "vain")
	counter(descPolls, s.Cut, "cut")
	off := 0.0
	if s.Off {
		off = 1
	}
	gauge(descPollingOff, off)
	counter(descPollsOff, s.Lost, "lost")
	counter(descPollsOff, s.Shared, "others")
	counter(descPollsOff, s.Pressed, "pressure")
}
