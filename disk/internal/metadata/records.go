package metadata

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
)

// Entry reads one record. found is false when there is none that can be read.
func (s *Store) Entry(k key.Key, e *database.Entry) (found bool, err error) {
	err = s.Entries([]key.Key{k}, func(_ int, got *database.Entry) { *e, found = *got, true })
	return found, err
}

// Entries hands the records of ks that can be read to each.
func (s *Store) Entries(ks []key.Key, each func(i int, e *database.Entry)) error {
	dbKeys := make([][]byte, len(ks))
	for i, k := range ks {
		dbKey := database.EntryKey(k)
		dbKeys[i] = dbKey[:]
	}
	err := s.ask(func(db *database.DB) error {
		return db.Get(dbKeys, func(i int, v []byte) {
			var e database.Entry
			if v != nil && database.DecodeEntry(&e, dbKeys[i], v) == nil {
				each(i, &e)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("disk: read record: %w", err)
	}
	return nil
}

// Payload is a copy of an inline payload: errNoPayload if there is none.
func (s *Store) Payload(k key.Key) (p []byte, err error) {
	dbKey := database.PayloadKey(k)
	err = s.ask(func(db *database.DB) error {
		return db.Get([][]byte{dbKey[:]}, func(_ int, v []byte) { p = v })
	})
	if err == nil && p == nil {
		err = ErrNoPayload
	}
	return p, err
}

// ErrNoPayload says that the payload of a record is missing.
var ErrNoPayload = errors.New("the payload is not in the database")

// Scan calls fn for every entry record, damaged ones included, in key order.
// Records committed meanwhile may be among them or not.
func (s *Store) Scan(ctx context.Context, fn func(k, v []byte) error) error {
	return s.scanAfter(ctx, nil, math.MaxInt, fn)
}

// scanAfter calls fn for the first n entry records behind a key of the database.
func (s *Store) scanAfter(ctx context.Context, after []byte, n int, fn func(k, v []byte) error) error {
	for more := true; more && n > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.ask(func(db *database.DB) (err error) {
			more, err = db.Page(database.EntryPrefix(), after, min(n, math.MaxInt32), func(k, v []byte) error {
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

// IsEmpty reports whether there is no entry record.
func (s *Store) IsEmpty() (empty bool, err error) {
	empty = true
	err = s.scanAfter(context.Background(), nil, 1, func(_, _ []byte) error {
		empty = false
		return nil
	})
	return empty && err == nil, err
}

// Keys are the keys of some records that follow each other.
type Keys struct {
	Wanted []key.Key
	Last   key.Key // of all that were looked at
}

// KeysAfter looks at the n records that follow from, and returns the keys of those that
// are wanted. At the end Last is from.
func (s *Store) KeysAfter(from key.Key, n int, wanted func(*database.Entry) bool) (Keys, error) {
	ks := Keys{Last: from}
	start := database.EntryKey(from)
	err := s.scanAfter(context.Background(), start[:], n, func(dbKey, v []byte) error {
		k, ok := database.ParseEntryKey(dbKey)
		if !ok {
			return nil
		}
		ks.Last = k
		var e database.Entry
		if database.DecodeEntry(&e, dbKey, v) == nil && wanted(&e) {
			ks.Wanted = append(ks.Wanted, k)
		} // one that is damaged is not in the ledger either
		return nil
	})
	return ks, err
}
