// Package accept takes the connections of a listener, for every server of the
// daemon alike, and notices clients that leave. It owns no goroutine but those of
// Serve, and never reads or writes a connection.
//
// Locks: one around the set of live connections and one around those watched for
// departure; leaves, and none is held while a connection is served.
package accept
