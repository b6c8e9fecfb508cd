// Command rude measures how a well-behaved client fares beside others that are
// not: how long its calls take alone, and beside each attack, in turns within
// one run of the real daemon.
//
//	go run ./bench/rude
//
// The client and its attackers are processes of their own, of different users,
// so it takes root; without it, and with -same, they are of one user. The row
// "processors" attacks nothing: its processes only count, and show what the
// machine alone costs the client. With -idle the attackers get a processor only
// where neither daemon nor client wants one: the rest is the cost that the daemon
// itself allows them. After each call the client asks a bare server, too, which has
// no runtime and nothing else to do: its p99 is what the machine alone costs.
package main
