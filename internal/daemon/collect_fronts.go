package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvstored/kvstored/config"
)

var (
	descFrontConnections = desc("front_connections", "Connections of a front end now.", "front")
	descFrontTotal       = desc("front_connections_total", "Connections a front end has served.", "front")
	descFrontRefused     = desc("front_connections_refused_total", "Connections a front end had no room for, or whose user may not connect.", "front")
	descFrontLogins      = desc("front_logins_refused_total", "Logins of a front end's clients with a wrong password or user.", "front")
	descFrontRequests    = desc("front_requests_total", "Commands of a front end's clients.", "front")
	descFrontErrors      = desc("front_errors_total", "Commands that a front end could not carry out.", "front")
	descFrontMalformed   = desc("front_malformed_total", "Connections closed because of input that made no sense.", "front")
	descFrontHits        = desc("front_hits_total", "Values read through a front end.", "front")
	descFrontMisses      = desc("front_misses_total", "Values asked for and not found.", "front")
	descFrontDropped     = desc("front_dropped_total", "Values that a front end took and did not keep; it made sure that their names have none.", "front", "reason")
	descFrontOwed        = desc("front_owed_deletions", "Old values that could not be deleted from the disk yet; their names read as absent.", "front")
	descFrontHungUp      = desc("front_hung_up_total", "Connections closed because the client might not understand an error.", "front")
	descFrontStored      = desc("front_stored_total", "Values stored through a front end.", "front")
	descFrontRead        = desc("front_read_bytes_total", "Bytes read from a front end's clients.", "front")
	descFrontWritten     = desc("front_written_bytes_total", "Bytes written to a front end's clients.", "front")
)

func collectFronts(st *Stats, gauge gaugeFunc, counter counterFunc) {
	s, front := st.RESP, config.FrontRESP
	if s == nil {
		return
	}
	gauge(descFrontConnections, float64(s.Connections), front)
	gauge(descFrontOwed, float64(s.Owed), front)
	for reason, n := range s.Dropped {
		counter(descFrontDropped, n, front, reason)
	}
	for _, row := range []struct {
		desc  *prometheus.Desc
		value uint64
	}{
		{descFrontTotal, s.ConnectionsTotal}, {descFrontRefused, s.Refused}, {descFrontLogins, s.LoginsRefused},
		{descFrontRequests, s.Commands}, {descFrontErrors, s.Errors}, {descFrontMalformed, s.Malformed},
		{descFrontHits, s.Hits}, {descFrontMisses, s.Misses}, {descFrontStored, s.Stored}, {descFrontHungUp, s.HungUp},
		{descFrontRead, s.BytesRead}, {descFrontWritten, s.BytesWritten},
	} {
		counter(row.desc, row.value, front)
	}
}
