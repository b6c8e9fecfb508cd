package policy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// The tables at rest: tablesMagic, how many groups of classes follow (1, and
// one for each hint up to the highest that there was), for each class the hits
// and then the gone of each bin as float64, and the CRC-32C of all that. Little
// endian; 30 KB without hints.
const (
	tablesMagic = "tenure\x00\x01"
	groupBytes  = plain * bins * 2 * 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (p *tenure) MarshalBinary() ([]byte, error) {
	groups := p.learner.groups()
	data := make([]byte, 0, len(tablesMagic)+1+groups*groupBytes+4)
	data = append(data, tablesMagic...)
	data = append(data, byte(groups))
	for c := range groups * plain {
		for _, x := range p.learner.hits[c] {
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(x))
		}
		for _, x := range p.learner.gone[c] {
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(x))
		}
	}
	return binary.LittleEndian.AppendUint32(data, crc32.Checksum(data, castagnoli)), nil
}

func (p *tenure) UnmarshalBinary(data []byte) error {
	const head = len(tablesMagic) + 1
	if len(data) < head+4 || string(data[:len(tablesMagic)]) != tablesMagic {
		return errors.New("policy: these are no tables of tenure")
	}
	groups := int(data[head-1])
	if groups < 1 || groups > int(hints) || len(data) != head+groups*groupBytes+4 {
		return fmt.Errorf("policy: tables of tenure with %d groups in %d bytes", groups, len(data))
	}
	body, sum := data[:len(data)-4], binary.LittleEndian.Uint32(data[len(data)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return errors.New("policy: the tables of tenure are damaged")
	}
	var read learner
	body = body[head:]
	for c := range groups * plain {
		for _, tally := range []*[bins]float64{&read.hits[c], &read.gone[c]} {
			for b := range tally {
				x := math.Float64frombits(binary.LittleEndian.Uint64(body))
				body = body[8:]
				if !(x >= 0 && x <= 2*memory) { // nor if it is no number
					return fmt.Errorf("policy: tables of tenure with %v observations in a cell", x)
				}
				tally[b] = x
				read.seen += x
			}
		}
	}
	l := &p.learner
	l.hits, l.gone, l.seen = read.hits, read.gone, read.seen
	l.highest = max(l.highest, Hint(groups-1))
	p.train()
	return nil
}
