package blockio

// Small payloads that lie side by side, as those of one prompt mostly do, are
// written by one request: a device, and the way to it, take as long over a
// request of 64 KiB as over one that is several times larger. Reads are not
// joined: the Get that waits for the first of them would wait for all.

// lookBehind is how many waiting transfers are searched for a neighbour.
// Concurrent puts do not queue quite in the order of their extents.
const lookBehind = 32

// maxRefused requests of several transfers that failed although each of those
// went well alone mean that the file system takes no such requests, or cuts
// them short: no more are made.
const maxRefused = 3

// vectored is a file that takes several payloads side by side in one request.
type vectored interface {
	// WriteVAt writes ps one after the other from off on.
	WriteVAt(ps [][]byte, off int64) (n int, err error)
}

// neighbours calls with for queued transfers that lie behind t, each wholly,
// as far as they make one request with t's next piece, and returns the bytes
// of that request. with may take its argument out of the queue. The owner
// holds mu.
func (t *Transfer) neighbours(with func(*Transfer)) (bytes int) {
	from, to := t.piece()
	bytes = to - from
	if _, ok := t.File.(vectored); !ok || !t.Write || to < len(t.Buf) || t.Dev.refused.Load() >= maxRefused {
		return bytes
	}
	for end := t.Off + int64(to); ; {
		x := t.neighbour(end, PieceBytes-bytes)
		if x == nil {
			return bytes
		}
		bytes += len(x.Head) + len(x.Buf)
		end += int64(len(x.Head) + len(x.Buf))
		with(x)
	}
}

// neighbour is the transfer of at most so many bytes that begins at end, if
// it comes soon after t in the queue.
func (t *Transfer) neighbour(end int64, bytes int) *Transfer {
	x := t.succ
	for range lookBehind {
		if x == nil {
			break
		}
		if x.begins() == end && x.next == 0 && len(x.Head)+len(x.Buf) <= bytes && x.File == t.File {
			return x
		}
		x = x.succ
	}
	return nil
}

// doTogether does t's piece [from, to) and the whole transfers chained to it
// in one request, and reports whether that went well.
func (t *Transfer) doTogether(from, to int) bool {
	var ps [][]byte
	off := t.Off + int64(from)
	if from == 0 && t.Head != nil {
		ps, off = append(ps, t.Head), t.begins()
	}
	ps = append(ps, t.Buf[from:to])
	for x := t.with; x != nil; x = x.with {
		if x.Head != nil {
			ps = append(ps, x.Head)
		}
		ps = append(ps, x.Buf)
	}
	bytes := 0
	for _, p := range ps {
		bytes += len(p)
	}
	n, err := t.File.(vectored).WriteVAt(ps, off)
	return err == nil && n == bytes
}
