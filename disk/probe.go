package disk

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/folders"
)

// How many pieces are under way at once. Two keep a device busy while one is
// being submitted; more make the first chunk of a prefix late, so they must
// gain something.
const (
	defaultIODepth = 2
	maxProbedDepth = 4
	depthGain      = 1.10 // of the rate, that one more must bring

	depthName = "kvstored.depth" // remembers what the probe found: the depth, and MB/s read and written; remove it to have it find anew
)

// The probe's bounds: the file takes about 150 ms or this size, the reads 300 ms.
const (
	probeBytes     = 64 << 20
	probeWriteTime = 150 * time.Millisecond
	probeReadTime  = 50 * time.Millisecond // of each depth, twice
)

// depth is how many pieces are to be under way in v: the number of the options,
// or the one that a probe has left in the folder, or that of a probe now. A path
// that cannot be probed gets defaultIODepth, and no rates.
func (o opening) depth(v *volume) (int, error) {
	t := o.t
	if t.o.IODepth > 0 {
		return t.o.IODepth, nil
	}
	if !v.folder.Direct() {
		return defaultIODepth, nil // it would be the page cache that is measured
	}
	if text, err := v.at.Read(depthName); err == nil {
		var n, read, wrote int
		if _, err := fmt.Sscan(string(text), &n, &read, &wrote); err == nil && n >= 1 && n <= maxProbedDepth && min(read, wrote) > 0 {
			v.probed = [2]uint64{1e6 * uint64(read), 1e6 * uint64(wrote)}
			return n, nil
		}
	}
	if free, err := t.o.free(v.dir); err != nil || free-probeBytes < t.o.minFree.Load() {
		return defaultIODepth, nil //nolint:nilerr // who looks next will say so
	}
	rates, wrote, err := probe(v.at, v.folder)
	if err != nil {
		t.log.Warn().Err(err).Str("path", v.dir).Msg("the device could not be probed")
		return defaultIODepth, nil
	}
	depth := bestDepth(rates)
	v.probed = [2]uint64{1e6 * uint64(rates[depth]), 1e6 * uint64(wrote)}
	t.log.Info().Str("path", v.dir).Int("depth", depth).Ints("mb_per_second", rates[defaultIODepth:]).Int("written_mb_per_second", wrote).
		Msg("probed how many reads are to be under way")
	return depth, v.at.Replace(depthName, fmt.Appendln(nil, depth, rates[depth], wrote))
}

// bestDepth is the least that gains from each step up to it.
func bestDepth(rates []int) int {
	best := defaultIODepth
	for d := best + 1; d < len(rates); d++ {
		if float64(rates[d]) > depthGain*float64(rates[best]) {
			best = d
		}
	}
	return best
}

// probe measures random reads of pieces from a file that it writes before and
// removes afterwards, by depth, and its writes one after the other: both in MB/s.
func probe(at *folders.Folder, f blockio.Folder) (rates []int, wrote int, err error) {
	_ = at.Remove(blockio.ProbeName) // of a process that was killed
	file, err := f.Create(blockio.ProbeName, probeBytes)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		_ = file.Close()
		_ = at.Remove(blockio.ProbeName)
	}()
	piece := blockio.AlignedBytes(blockio.PieceBytes)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(piece) // never fails
	written, begun := 0, time.Now()
	for written < probeBytes && (written == 0 || time.Since(begun) < probeWriteTime) {
		if _, err := file.WriteAt(piece, int64(written)); err != nil {
			return nil, 0, fmt.Errorf("write to the probe: %w", err)
		}
		written += blockio.PieceBytes
	}
	wrote = mbPerSecond(int64(written), begun)
	rates = make([]int, maxProbedDepth+1)
	for range 2 { // devices have moods
		for d := defaultIODepth; d <= maxProbedDepth; d++ {
			rate, err := probeDepth(file, written/blockio.PieceBytes, d)
			if err != nil {
				return nil, 0, fmt.Errorf("read from the probe: %w", err)
			}
			rates[d] = max(rates[d], rate)
		}
	}
	return rates, wrote, nil
}

// probeDepth reads with d pieces under way, out of the first n pieces.
func probeDepth(file blockio.File, n, d int) (rate int, err error) {
	var read atomic.Int64
	var readers errgroup.Group
	begun := time.Now()
	for range d {
		readers.Go(func() error {
			piece := blockio.AlignedBytes(blockio.PieceBytes)
			for time.Since(begun) < probeReadTime {
				if _, err := file.ReadAt(piece, rand.Int64N(int64(n))*blockio.PieceBytes); err != nil {
					return err
				}
				read.Add(blockio.PieceBytes)
			}
			return nil
		})
	}
	err = readers.Wait()
	return mbPerSecond(read.Load(), begun), err
}

// mbPerSecond is a rate of 1 at least.
func mbPerSecond(n int64, since time.Time) int {
	return max(1, int(float64(n)/1e6/max(1e-6, time.Since(since).Seconds())))
}
