// Package fair decides whose load goes next where a tier takes only so many
// at a time.
//
// It owns a Queue per tier: clients take turns by bytes, and so do the jobs of
// one client, so that neither many jobs nor a long one keep others waiting. It
// never knows what is loaded, and does none of the loading.
//
// The order is start-time fair queueing (Goyal, Vin, Cheng: Start-time fair
// queuing, SIGCOMM 1996), once over clients and once over the jobs of each.
//
// Locks: a Queue has one mutex; nothing is called or waited for under it.
package fair
