// Package zmtp is the small part of ZeroMQ's wire protocol, ZMTP 3.0 with the
// NULL mechanism (rfc.zeromq.org/spec/23), that KV events take: a publisher
// ([Publisher], PUB), a server of replays ([Replier], ROUTER), and their clients
// ([Dial], SUB and DEALER). Peers with ZMTP 3.1 speak 3.0 with it.
//
//	greeting 64 bytes each way -> READY command each way -> messages of frames
//	PUB: per subscriber  topics, a bounded queue -> the socket
//
// It owns its connections. It never queues without a bound: a subscriber that
// does not read misses messages, as ZeroMQ's high-water mark has it; the numbers
// in the messages tell it. A peer that says nothing, sends a frame beyond the
// limit or stops reading in the middle of a message loses its connection.
//
// # Never does
//
// It knows no msgpack and no events; it has no CURVE, PLAIN, heartbeats of its
// own, or sending of several parts to several peers in turn. It reconnects
// nothing: its caller does.
//
// # Locks
//
// Publisher.mu guards the set of subscribers, subscriber.mu the topics of one;
// neither is held over I/O or while the other is taken.
package zmtp
