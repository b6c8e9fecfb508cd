package stack

import "github.com/kvstored/kvstored/key"

// atWork is the keys that workers are at, at most as many as there are workers.
// The writer's mutex guards it.
type atWork map[key.Key]keyTasks

// keyTasks is the tasks of one key.
type keyTasks struct {
	tasks int  // taken and not ended
	busy  bool // one of them is being written
	// wanted is set where one of them was found worth writing.
	wanted bool
}

// take notes that a worker has a task.
func (f atWork) take(k key.Key, wanted bool) {
	at := f[k]
	at.tasks++
	at.wanted = at.wanted || wanted
	f[k] = at
}

// release notes that a task has ended.
func (f atWork) release(k key.Key) {
	at := f[k]
	if at.tasks--; at.tasks > 0 {
		f[k] = at
	} else {
		delete(f, k)
	}
}

// begin begins the write of a key, unless another worker writes it. Two at a time
// are two lives of it, with a delete between them: the second would take what the
// first has just written for its own, and the first then takes it back.
func (f atWork) begin(k key.Key) bool {
	at := f[k]
	if at.busy {
		return false
	}
	at.busy = true
	f[k] = at
	return true
}

// end ends the write of a key.
func (f atWork) end(k key.Key) {
	at := f[k]
	at.busy = false
	f[k] = at
}

// touches reports whether a worker is at anything that d deletes.
func (f atWork) touches(d *deletion) bool {
	for k := range f {
		if d.has(k) {
			return true
		}
	}
	return false
}
