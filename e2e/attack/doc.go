// Package attack tests what rude clients, and broken ones, can do to a daemon and to
// clients beside them that behave.
//
// It needs Linux. As root the attackers are another user than the clients that behave,
// and the daemon lives in a memory control group, where the kernel has it; else both are
// left out. It takes both processors of a small machine.
package attack
