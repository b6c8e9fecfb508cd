package redis_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestGoRedis stores and reads through go-redis, with both of its protocols, by single
// commands, a pipeline and a transaction.
func TestGoRedis(t *testing.T) {
	_, socket, port := startFronts(t)
	tcp := net.JoinHostPort("127.0.0.1", port)
	big := strings.Repeat("\x00\r\n\xff", 1<<20)
	for _, o := range []redis.Options{
		{Network: "unix", Addr: socket, ClientName: "me"}, {Addr: tcp, Password: "secret"}, {Addr: tcp, Password: "secret", Protocol: 2},
	} {
		c, ctx := redis.NewClient(&o), t.Context()
		defer c.Close() //nolint:errcheck // ends with the test
		wants(t, c.Ping(ctx), "PONG")
		if err := c.Get(ctx, "none").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("a value that is not there: %v", err)
		}
		wants(t, c.Set(ctx, "kv", big, 0), "OK")
		if got, err := c.Get(ctx, "kv").Result(); got != big || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		wants(t, c.SetEx(ctx, "a", "1", time.Hour), "OK") //nolint:staticcheck // old clients send it
		if left, err := c.TTL(ctx, "a").Result(); left <= 59*time.Minute || err != nil {
			t.Errorf("%v are left, %v", left, err)
		}
		wants(t, c.MSet(ctx, "a", "1", "b", ""), "OK")
		if got, err := c.MGet(ctx, "a", "none", "b").Result(); !slices.Equal(got, []any{"1", nil, ""}) || err != nil {
			t.Errorf("MGET: %q, %v", got, err)
		}
		for _, run := range []func(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error){c.Pipelined, c.TxPipelined} {
			cmds, err := run(ctx, func(p redis.Pipeliner) error {
				p.Set(ctx, "p", "2", time.Hour)
				p.Get(ctx, "p")
				p.Exists(ctx, "p", "none")
				p.Del(ctx, "p")
				return nil
			})
			if err != nil || len(cmds) != 4 {
				t.Fatalf("%d replies, %v", len(cmds), err)
			}
			wants(t, cmds[1].(*redis.StringCmd), "2")
			wants(t, cmds[3].(*redis.IntCmd), 1)
		}
		if n, err := c.Del(ctx, "kv", "a", "b", "none").Result(); n != 3 || err != nil {
			t.Errorf("%d deleted, %v", n, err)
		}
	}
	c := redis.NewClient(&redis.Options{Addr: tcp, Password: "wrong"})
	defer c.Close() //nolint:errcheck // ends with the test
	if err := c.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
}

// wants wants a command to have that reply.
func wants[V comparable](t *testing.T, cmd interface{ Result() (V, error) }, want V) {
	t.Helper()
	if got, err := cmd.Result(); got != want || err != nil {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
