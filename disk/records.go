package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
)

// entry reads one record. found is false when there is none that can be read.
func (s *store) entry(k key.Key, e *record.Entry) (found bool, err error) {
	err = s.entries([]key.Key{k}, func(_ int, got *record.Entry) { *e, found = *got, true })
	return found, err
}

// entries hands the records of ks that can be read to each.
func (s *store) entries(ks []key.Key, each func(i int, e *record.Entry)) error {
	dbKeys := make([][]byte, len(ks))
	for i, k := range ks {
		dbKey := record.EntryKey(k)
		dbKeys[i] = dbKey[:]
	}
	err := s.ask(func(db *database.DB) error {
		return db.Get(dbKeys, func(i int, v []byte) {
			var e record.Entry
			if v != nil && record.DecodeEntry(&e, dbKeys[i], v) == nil {
				each(i, &e)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("disk: read record: %w", err)
	}
	return nil
}

// payload is a copy of an inline payload: errNoPayload if there is none.
func (s *store) payload(k key.Key) (p []byte, err error) {
	dbKey := record.PayloadKey(k)
	err = s.ask(func(db *database.DB) error {
		return db.Get([][]byte{dbKey[:]}, func(_ int, v []byte) { p = v })
	})
	if err == nil && p == nil {
		err = errNoPayload
	}
	return p, err
}

// errNoPayload says that the payload of a record is missing.
var errNoPayload = errors.New("the payload is not in the database")

// scan calls fn for every entry record, damaged ones included, in key order.
// Records committed meanwhile may be among them or not.
func (s *store) scan(ctx context.Context, fn func(k, v []byte) error) error {
	return s.scanAfter(ctx, nil, math.MaxInt, fn)
}

// scanAfter calls fn for the first n entry records behind a key of the database.
func (s *store) scanAfter(ctx context.Context, after []byte, n int, fn func(k, v []byte) error) error {
	for more := true; more && n > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.ask(func(db *database.DB) (err error) {
			more, err = db.Page(record.EntryPrefix(), after, min(n, math.MaxInt32), func(k, v []byte) error {
				after = k
				n--
				return fn(k, v)
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// isEmpty reports whether there is no entry record.
func (s *store) isEmpty() (empty bool, err error) {
	empty = true
	err = s.scanAfter(context.Background(), nil, 1, func(_, _ []byte) error {
		empty = false
		return nil
	})
	return empty && err == nil, err
}

// keysAfter returns up to n keys with an entry that follow from.
func (s *store) keysAfter(from key.Key, n int) (ks []key.Key, err error) {
	start := record.EntryKey(from)
	err = s.scanAfter(context.Background(), start[:], n, func(k, _ []byte) error {
		if k, ok := record.ParseEntryKey(k); ok {
			ks = append(ks, k)
		}
		return nil
	})
	return ks, err
}

// inSegment returns the keys of a segment that are wanted among the n records
// that follow from, and the last key it came by: from at the end.
func (s *store) inSegment(number uint32, wanted func(*record.Entry) bool, from key.Key, n int) (ks []key.Key, last key.Key, err error) {
	last = from
	start := record.EntryKey(from)
	err = s.scanAfter(context.Background(), start[:], n, func(dbKey, v []byte) error {
		k, ok := record.ParseEntryKey(dbKey)
		if !ok {
			return nil
		}
		last = k
		var e record.Entry
		if record.DecodeEntry(&e, dbKey, v) == nil && !e.Inline && e.Extent.Segment == number && wanted(&e) {
			ks = append(ks, k)
		} // one that is damaged is not in the ledger either
		return nil
	})
	return ks, last, err
}

// graves returns the keys that were deleted during a recovery, which did not know
// all their headers yet, with the numbers of their deletions.
func (s *store) graves() (map[key.Key]uint64, error) {
	list := make(map[key.Key]uint64)
	var after []byte
	for more := true; more; {
		err := s.ask(func(db *database.DB) (err error) {
			more, err = db.Page(record.GravePrefix(), after, math.MaxInt32, func(dbKey, v []byte) error {
				after = dbKey
				if k, ok := record.ParseGraveKey(dbKey); ok && len(v) == 8 {
					list[k] = binary.LittleEndian.Uint64(v)
				}
				return nil
			})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
