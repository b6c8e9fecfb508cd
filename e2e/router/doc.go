// Package router tests the router: over daemons that are killed, as it is deployed, and
// its ZeroMQ against libzmq.
//
//	go -C e2e test ./router
//	go -C e2e test ./router -run TestRouteEndToEnd -requests 20000 -asked 10000
//
// It needs python3 with pyzmq. The trace of conversations is played where it lies in
// shared/traces beside the checkout, else conversations that are made up.
package router
