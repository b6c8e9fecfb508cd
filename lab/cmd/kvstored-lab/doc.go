// Command kvstored-lab replays traces against a daemon, simulates what caches would keep of
// them, and says what other sizes and policies would have hit of what a daemon's clients
// asked for.
package main
