package resp

// protocol is the version of RESP in which a connection is answered. A client
// chooses it with HELLO, and has RESP2 until then.
type protocol int8

const (
	resp2 protocol = 2
	resp3 protocol = 3
)

// null answers that there is no value.
func (o *output) null() {
	if o.speaks == resp3 {
		o.buf = append(o.buf, "_\r\n"...)
		return
	}
	o.buf = append(o.buf, "$-1\r\n"...)
}

// pairs begins n names, each with its value: a map, or an array of both.
func (o *output) pairs(n int) {
	if o.speaks == resp3 {
		o.header('%', int64(n))
		return
	}
	o.array(2 * n)
}

// verbatim answers text that is for people.
func (o *output) verbatim(s string) {
	if o.speaks == resp2 {
		o.text(s)
		return
	}
	const format = "txt:"
	o.header('=', int64(len(format)+len(s)))
	o.buf = append(append(append(o.buf, format...), s...), '\r', '\n')
	o.relieve()
}
