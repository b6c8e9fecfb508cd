package resp

import "sync"

const (
	// keptArgs is for how many arguments a connection keeps room between commands.
	keptArgs = 1 << 10
	// manyArgs take their room from the pool, which keeps no more than pooledArgs
	// and pooledText of it.
	manyArgs   = 128
	pooledArgs = 1 << 14
	pooledText = 1 << 20
)

// arguments are those of one command, besides its values.
type arguments struct {
	args [][]byte // without the command's name; empty where a value was
	text []byte   // what args lie in
	ends []int    // of each argument in text
}

// rooms is room of long commands, which a connection does not keep for itself.
var rooms = sync.Pool{New: func() any { return new(arguments) }}

// make finds room for n arguments. It is empty: a length that a client announces
// costs nothing.
func (a *arguments) make(n int) {
	if n >= manyArgs && cap(a.args) < manyArgs {
		room := rooms.Get().(*arguments)
		*a, *room = *room, arguments{}
	}
}

// cutArgs makes arguments of the text.
func (a *arguments) cutArgs() {
	at := 0
	for _, end := range a.ends {
		a.args = append(a.args, a.text[at:end:end])
		at = end
	}
}

// reset empties the room, and gives back the room beyond that which a connection keeps.
func (a *arguments) reset() {
	clear(a.args) // they lie in text, which may be long
	a.args, a.text, a.ends = a.args[:0], a.text[:0], a.ends[:0]
	most := max(cap(a.args), cap(a.ends))
	if most <= keptArgs && cap(a.text) <= inputBytes {
		return
	}
	if most <= pooledArgs && cap(a.text) <= pooledText {
		room := *a
		rooms.Put(&room)
	}
	*a = arguments{}
}
