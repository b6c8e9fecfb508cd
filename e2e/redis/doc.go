// Package redis tests the front ends for other clients with those clients: redis-py,
// redis-cli and redis-benchmark, clients that understand no errors while the disk is in
// trouble, LMCache's, and clients of users that may not connect.
//
//	go -C e2e test -count=1 ./redis
//	go -C e2e test -count=1 ./redis -run TestExactClients -commands 100000
//
// It needs redis-tools and python3 with redis, and root for the users.
package redis
