// Package fair decides whose load goes next where a tier takes only so many
// at a time.
//
// It owns a Queue per tier: clients take turns by bytes, and so do the jobs of
// one client, so that neither many jobs nor a long one keep others waiting. It
// never knows the chunks that are loaded, and does none of the loading. A client that
// comes back for one load after the other pays for its past loads, as one does that has
// many waiting.
//
// The order is start-time fair queueing (Goyal, Vin, Cheng: Start-time fair
// queuing, SIGCOMM 1996), once over clients and once over the jobs of each.
//
// Locks: a Queue has one mutex; nothing is waited for under it, and nothing called.
package fair
