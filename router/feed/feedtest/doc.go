// Package feedtest has what tests of events need: batches as engines write them,
// and an engine that publishes and replays over ZeroMQ. It is for tests only.
package feedtest
