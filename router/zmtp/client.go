package zmtp

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// Client is a SUB or DEALER socket with one connection. It has one reader and one
// writer.
type Client struct{ conn *conn }

// Addr is the network and the address of an endpoint, tcp://host:port or
// ipc:///path.
func Addr(endpoint string) (network, addr string, err error) {
	scheme, rest, _ := strings.Cut(endpoint, "://")
	switch {
	case scheme == "tcp" && rest != "":
		if _, _, err := net.SplitHostPort(rest); err != nil {
			return "", "", fmt.Errorf("endpoint %q: %w; write tcp://host:port", endpoint, err)
		}
		return "tcp", rest, nil
	case scheme == "ipc" && strings.HasPrefix(rest, "/"):
		return "unix", rest, nil
	}
	return "", "", fmt.Errorf("endpoint %q: write tcp://host:port or ipc:///path", endpoint)
}

// Dial connects to a publisher, with kind SUB, or a server of replays, with
// DEALER. max is the most bytes of a message that comes, and room is for large ones of
// this and other connections; nil: there is always some.
func Dial(ctx context.Context, kind, endpoint string, max int, room *Room) (*Client, error) {
	network, addr, err := Addr(endpoint)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	peers := []string{"PUB", "XPUB"}
	if kind == "DEALER" {
		peers = []string{"ROUTER", "REP", "DEALER"}
	}
	c, err := handshake(nc, kind, max, peers...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", endpoint, err)
	}
	c.room = room
	return &Client{c}, nil
}

// Subscribe asks for the messages whose topic begins with topic.
func (c *Client) Subscribe(topic string) error {
	return c.Send(append([]byte{1}, topic...))
}

// Send sends a message.
func (c *Client) Send(frames ...[]byte) error { return c.conn.write(stall, frames...) }

// Receive waits for a message, at most until the deadline if it is not zero. The
// frames are the caller's until the next Receive or Close.
func (c *Client) Receive(deadline time.Time) ([][]byte, error) {
	c.conn.until = deadline
	if err := c.conn.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	return c.conn.read()
}

// Close ends the connection; a Receive under way fails.
func (c *Client) Close() error {
	defer c.conn.leave()
	return c.conn.Close()
}
