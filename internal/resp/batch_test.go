package resp_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/blob"
	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
)

// batchOf is the names and values of a batch, 256 KiB each.
func batchOf(prefix string, n int) (names, values []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, i))
		values = append(values, strings.Repeat(names[i]+";", 256<<10/(len(names[i])+1)))
	}
	return names, values
}

func mset(names, values []string) []byte {
	args := []string{"MSET"}
	for i := range names {
		args = append(args, names[i], values[i])
	}
	return encode(args...)
}

// fromDisk reports whether GET of a name, which has the value, reads the disk.
func (r *rig) fromDisk(c *conn, name, value string) bool {
	r.t.Helper()
	var reads atomic.Int64
	r.store.Fault(func(c tierfault.Call) (f tierfault.Fault) {
		if c.Op == tierfault.Get {
			reads.Add(1)
		}
		return f
	})
	defer r.store.Fault(nil)
	c.send(encode("GET", name))
	c.expect(fmt.Sprintf("$%d\r\n%s\r\n", len(value), value))
	return reads.Load() > 0
}

// fill stores so many other values and waits until the disk has them.
func (r *rig) fill(c *conn, n int) {
	r.t.Helper()
	names, values := batchOf("other", n)
	for i := range n {
		c.send(encode("SET", names[i], values[i]))
		c.expect("+OK\r\n")
	}
	r.store.Flush()
}

// TestOrderOfABatch: of the values of one batch the last goes from DRAM first, stored
// and read; each has its bytes, and stays when the others are deleted.
func TestOrderOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, read := range []bool{false, true} {
			r := newRigOf(t, 4<<20, resp.Options{})
			c := r.dial(r.unix)
			names, values := batchOf("n", 6)
			c.send(mset(names, values))
			c.expect("+OK\r\n")
			r.store.Flush() // what the disk does not have is lost when it goes from DRAM
			if read {       // in the other order, and twice, and one that is not there
				slices.Reverse(names)
				slices.Reverse(values)
				c.send(encode(append(append([]string{"MGET"}, names...), "absent", names[0])...))
				c.expect("*8\r\n")
				for i := range 8 {
					if i == 6 {
						c.expect("$-1\r\n")
						continue
					}
					value := values[i%7]
					c.expect(fmt.Sprintf("$%d\r\n%s\r\n", len(value), value))
				}
			}
			r.fill(c, 10)
			for i, want := range []bool{false, false, true} {
				at := []int{0, 1, 5}[i]
				if got := r.fromDisk(c, names[at], values[at]); got != want {
					t.Errorf("read %t: value %d comes from disk: %t", read, at, got)
				}
			}
			c.send(encode("DEL", names[0]))
			c.expect(":1\r\n")
			if r.fromDisk(c, names[1], values[1]) {
				t.Errorf("read %t: what follows a deleted value is gone from DRAM", read)
			}
		}
	})
}

// TestMgetComesUpTogether: while the first value is read from disk the next one is, too.
func TestMgetComesUpTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, 4<<20, resp.Options{})
		c := r.dial(r.unix)
		names, values := batchOf("n", 4)
		c.send(mset(names, values))
		c.expect("+OK\r\n")
		r.store.Flush() // what the disk does not have is lost when it goes from DRAM
		r.fill(c, 24)
		var reads atomic.Int64
		second := make(chan struct{})
		r.store.Fault(func(c tierfault.Call) (f tierfault.Fault) {
			if c.Op != tierfault.Get {
				return f
			}
			if reads.Add(1) == 2 {
				close(second)
			}
			select {
			case <-second:
			case <-time.After(patience):
				f.Err = tier.ErrNotFound
			}
			return f
		})
		defer r.store.Fault(nil)
		c.send(encode(append([]string{"MGET"}, names...)...))
		c.expect("*4\r\n")
		for _, value := range values {
			c.expect(fmt.Sprintf("$%d\r\n%s\r\n", len(value), value))
		}
	})
}

// TestMsetTwice: of two values of one name in a batch the last one counts.
func TestMsetTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{})
		c := r.dial(r.unix)
		c.send(encode("MSET", "a", "1", "b", "2", "a", "3", "b", "4", "c", "5", "a", "6"))
		c.expect("+OK\r\n")
		c.send(encode("MGET", "a", "b", "c"))
		c.expect("*3\r\n$1\r\n6\r\n$1\r\n4\r\n$1\r\n5\r\n")
	})
}

// TestCommandsOfManyNames: a command of a thousand names takes as many passes over the
// store as names fit into passes. EXISTS leases what it finds in passes of its own, and
// nothing that it has leased already.
func TestCommandsOfManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{})
		c := r.dial(r.unix)
		const n = 1000
		names, absent, args := make([]string, n), make([]string, n), []string{"MSET"}
		for i := range names {
			names[i], absent[i] = fmt.Sprint("name", i), fmt.Sprint("absent", i)
			args = append(args, names[i], "v")
		}
		c.send(encode(args...))
		c.expect("+OK\r\n")
		r.store.Flush()
		passes := func(want string, command string, names []string) int {
			before := r.store.Passes()
			c.send(encode(slices.Insert(slices.Clone(names), 0, command)...))
			c.expect(want)
			return int(r.store.Passes() - before)
		}
		in := func(most int) int { return (n + most - 1) / most }
		most := func(what string, got, want int) {
			if got > want {
				t.Errorf("%s: %d passes for %d names, want %d at most", what, got, n, want)
			}
		}
		most("EXISTS", passes(":1000\r\n", "EXISTS", names), 2*in(blob.PassNames))
		least := n
		for range 20 { // in some runs what is kept is let go meanwhile
			least = min(least, passes(":1000\r\n", "EXISTS", names))
		}
		most("EXISTS of what it keeps", least, 0)
		most("EXISTS of absent names", passes(":0\r\n", "EXISTS", absent), in(blob.PassNames))
		most("MGET", passes("*1000\r\n"+strings.Repeat("$1\r\nv\r\n", n), "MGET", names), in(blob.PassNames))
		most("MGET of absent names", passes("*1000\r\n"+strings.Repeat("$-1\r\n", n), "MGET", absent), in(blob.PassNames))
		most("DEL of absent names", passes(":0\r\n", "DEL", absent), in(blob.DeleteNames))
		most("DEL", passes(":1000\r\n", "DEL", names), in(blob.DeleteNames))
	})
}
