// Command kvstored-router says which of several engines a request should go to (serve),
// and publishes the events of a daemon over ZeroMQ (bridge).
package main
