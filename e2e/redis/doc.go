// Package redis tests the Redis front end with its clients: redis-py, go-redis,
// redis-cli and redis-benchmark, clients that understand no errors while the disk is in
// trouble, and clients of users that may not connect.
//
//	go -C e2e test -count=1 ./redis
//	go -C e2e test -count=1 ./redis -run TestExactClients -commands 100000
//
// It needs redis-tools and python3 with redis, and root for the users.
package redis
