package server

import "errors"

// notForRedis is what a Redis client is told, in its own protocol.
const notForRedis = "-ERR this is kvstored's own socket; Redis clients belong to listen.resp\r\n"

// redisBytes is how much tells a Redis client: its shortest command has more.
const redisBytes = 4

// turnAwayRedis looks at what a connection begins with, and tells a Redis client
// that it has the wrong socket: it would wait for an answer to less than a frame.
func turnAwayRedis(c *session) error {
	start, err := c.conn.Peek(redisBytes)
	if err != nil || !likeRedis([redisBytes]byte(start)) {
		return err
	}
	c.server.count.malformed.Add(1)
	c.out.send([]byte(notForRedis))
	return errors.New("the client speaks Redis's protocol")
}

// likeRedis reports whether a Redis client may begin so: with the length of an
// array ("*1\r\n") or a command typed by hand ("PING", "get ").
//
// No frame is taken for that. It begins with the length of its body, whose
// highest byte comes fourth. That byte is at least 10, a line feed, in all that
// is accepted here, so the body would have at least 160 MiB; a hello has at most
// wire.MaxHelloBytes, 128 KiB, and every other frame wire.MaxBodyBytes, 72 MiB.
func likeRedis(start [redisBytes]byte) bool {
	if first := start[0]; first != '*' && !letter(first) {
		return false
	}
	for _, b := range start[1:] {
		switch {
		case letter(b), '0' <= b && b <= '9', b == '-', b == ' ', b == '\r', b == '\n':
		default:
			return false
		}
	}
	return true
}

func letter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }
