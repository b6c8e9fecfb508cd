// Package fair decides whose load goes next where a tier takes only so many
// at a time, and whose request where it computes for long.
//
// It owns a Queue per tier: clients take turns by bytes, and so do the jobs of
// one client, so that neither many jobs nor a long one keep others waiting. It
// never knows the chunks that are loaded, and does none of the loading. A client that
// comes back for one load after the other pays for what it has had, as one does that has
// many waiting.
//
// It owns a Gate per daemon: users take turns by the time that they compute, in
// slices of 200 us, and light requests never wait. So a request of a
// million chunks costs those of other users a slice, not its length.
//
// The order is start-time fair queueing (Goyal, Vin, Cheng: Start-time fair
// queuing, SIGCOMM 1996), once over clients and once over the jobs of each.
//
// Locks: a Queue has one mutex, and a Gate; nothing is waited for under it, and
// nothing called but the Gate's busy. A mutex that is held for long, such as over
// I/O, is taken by Lock: turns that wait for it have no place.
package fair
