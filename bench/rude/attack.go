package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/wire"
)

// attack is one way to be rude: each of its clients does it again and again,
// with a connection of its own unless it makes them itself.
type attack struct {
	name    string
	clients int
	do      func(ctx context.Context, j *job, id uint64) error
}

// million is as many chunks as one request may name.
const million = 1 << 20

var attacks = []attack{
	{"processors", 2, count},
	{"lookups", 4, lookups},
	{"deletes", 4, deletes},
	{"pipelines", 4, pipelines},
	{"pings", 64, pings},
	{"churn", 8, churn},
	{"garbage", 8, garbage},
	{"passwords", 8, passwords},
	{"unread", 8, unread},
	{"halves", 512, halves},
	{"connections", 5000, connections},
}

// assault makes an attack until the process is killed. An attack goes on where
// the daemon refuses it.
func assault(j *job) error {
	for _, a := range attacks {
		if a.name != j.Attack {
			continue
		}
		for i := range a.clients {
			go func() {
				for {
					if err := a.do(context.Background(), j, uint64(i+1)); err != nil {
						time.Sleep(time.Millisecond)
					}
				}
			}()
		}
		time.Sleep(time.Second)
		fmt.Println("begun")
		select {}
	}
	return fmt.Errorf("no attack is called %q", j.Attack)
}

// count uses processors, and nothing of the daemon's.
func count(context.Context, *job, uint64) error {
	for n := 0; ; n++ {
		if n < 0 {
			return nil
		}
	}
}

// dial is a client that means no harm yet.
func dial(ctx context.Context, j *job) (*client.Client, error) {
	return client.Dial(ctx, j.Socket, client.Options{Name: "attacker", Space: &space, Timeout: -1})
}

// forever does something with one connection until that fails.
func forever(ctx context.Context, j *job, do func(c *client.Client) error) error {
	c, err := dial(ctx, j)
	if err != nil {
		return err
	}
	defer c.Close()
	for err == nil {
		err = do(c)
	}
	return err
}

// lookups asks for prompts of a million chunks.
func lookups(ctx context.Context, j *job, id uint64) error {
	p := prompt(id, million)
	return forever(ctx, j, func(c *client.Client) error {
		_, err := c.Lookup(ctx, p, 0)
		return err
	})
}

// deletes deletes a million chunks that are not there.
func deletes(ctx context.Context, j *job, id uint64) error {
	p := prompt(id, million)
	return forever(ctx, j, func(c *client.Client) error {
		_, err := c.DeletePrompt(ctx, p)
		return err
	})
}

// pipelines sends gets without waiting for the answers.
func pipelines(ctx context.Context, j *job, id uint64) error {
	p := prompt(id, promptChunks)
	payloads := make([][]byte, promptChunks)
	for i := range payloads {
		payloads[i] = make([]byte, payloadBytes)
	}
	return forever(ctx, j, func(c *client.Client) error {
		if _, err := c.Put(ctx, p, 0, payloads); err != nil {
			return err
		}
		failed := make(chan error, 64)
		for range cap(failed) {
			go func() {
				for range 1000 {
					if _, err := c.Get(ctx, p, client.GetOptions{}); err != nil {
						failed <- err
						return
					}
				}
				failed <- nil
			}()
		}
		var err error
		for range cap(failed) {
			if e := <-failed; e != nil {
				err = e
			}
		}
		return err
	})
}

// pings asks for nothing, as often as it can.
func pings(ctx context.Context, j *job, _ uint64) error {
	return forever(ctx, j, func(c *client.Client) error { return c.Ping(ctx) })
}

// churn connects and hangs up.
func churn(ctx context.Context, j *job, _ uint64) error {
	c, err := dial(ctx, j)
	if err != nil {
		return err
	}
	return c.Close()
}

// garbage sends bytes that are no protocol.
func garbage(_ context.Context, j *job, _ uint64) error {
	conn, err := net.Dial("unix", j.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	b := make([]byte, 64<<10)
	for {
		_, _ = rand.Read(b) // never fails
		if _, err := conn.Write(b); err != nil {
			return nil // hung up, as it should
		}
	}
}

// passwords guesses.
func passwords(_ context.Context, j *job, _ uint64) error {
	conn, err := net.Dial("tcp", j.RESP)
	if err != nil {
		return err
	}
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		if _, err := io.WriteString(conn, "AUTH guess\r\n"); err != nil {
			return nil
		}
		if _, err := in.ReadString('\n'); err != nil {
			return nil
		}
	}
}

// greeted is a raw connection that has said hello, with its space open.
func greeted(j *job) (net.Conn, error) {
	conn, err := net.Dial("unix", j.Socket)
	if err != nil {
		return nil, err
	}
	hello := wire.HelloRequest{MinVersion: wire.Version, MaxVersion: wire.Version, Name: "attacker", HasSpace: true, Space: space}
	if _, err = conn.Write(wire.AppendRequest(nil, wire.OpHello, 1, &hello)); err == nil {
		_, err = conn.Read(make([]byte, 4<<10))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// unread asks for payloads and reads none.
func unread(ctx context.Context, j *job, id uint64) error {
	p := prompt(id, promptChunks)
	payloads := make([][]byte, promptChunks)
	for i := range payloads {
		payloads[i] = make([]byte, 16*payloadBytes)
	}
	c, err := dial(ctx, j)
	if err != nil {
		return err
	}
	_, err = c.Put(ctx, p, 0, payloads)
	c.Close()
	if err != nil {
		return err
	}
	conn, err := greeted(j)
	if err != nil {
		return err
	}
	defer conn.Close()
	chain := wire.Chain{Form: wire.FormHashes, Width: 16, Hashes: hashes(id, promptChunks)}
	frame := wire.AppendRequest(nil, wire.OpGet, 2, &wire.GetRequest{Chain: chain})
	for {
		if _, err := conn.Write(frame); err != nil {
			return nil // hung up
		}
	}
}

// halves leaves requests unfinished, large ones too.
func halves(_ context.Context, j *job, id uint64) error {
	conn, err := greeted(j)
	if err != nil {
		return err
	}
	defer conn.Close()
	chain := wire.Chain{Form: wire.FormHashes, Width: 16, Hashes: hashes(id, 1024)}
	frame := wire.AppendRequest(nil, wire.OpLookup, 2, &wire.LookupRequest{Chain: chain})
	if _, err := conn.Write(frame[:len(frame)/2]); err != nil {
		return nil
	}
	_, err = conn.Read(make([]byte, 1)) // until somebody hangs up
	time.Sleep(10 * time.Millisecond)
	return err
}

// connections takes as many as it gets.
func connections(ctx context.Context, j *job, _ uint64) error {
	return forever(ctx, j, func(c *client.Client) error {
		select {
		case <-c.Done():
		case <-ctx.Done():
		}
		return net.ErrClosed
	})
}
