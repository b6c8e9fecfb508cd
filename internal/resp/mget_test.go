package resp_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/resp"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
)

// TestMgetComesUpTogether: while the first value is read from disk the next one is, too.
func TestMgetComesUpTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, 4<<20, resp.Options{})
		c := r.dial(r.unix)
		names, reply := []string{"MGET"}, "*4\r\n"
		for i := range 4 {
			value := strings.Repeat(fmt.Sprint(i), 256<<10)
			names, reply = append(names, fmt.Sprint("n", i)), reply+bulk(value)
			c.do("+OK\r\n", "SET", names[i+1], value)
		}
		r.store.Flush() // what the disk does not have is lost when it goes from DRAM
		for i := range 24 {
			c.do("+OK\r\n", "SET", fmt.Sprint("other", i), strings.Repeat("x", 256<<10))
		}
		r.store.Flush()
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
		c.do(reply, names...)
	})
}

// TestMsetTwice: of two values of one name in a batch the last one counts.
func TestMsetTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, resp.Options{})
		c := r.dial(r.unix)
		c.do("+OK\r\n", "MSET", "a", "1", "b", "2", "a", "3", "b", "4", "c", "5", "a", "6")
		c.do("*3\r\n"+bulk("6")+bulk("4")+bulk("5"), "MGET", "a", "b", "c")
	})
}
