package database

import (
	"os"

	"github.com/dgraph-io/badger/v4"
)

// What tests of whole databases use, which open them with databasetest.
const FirstSetBytes = manifestHead + setHead // before the first change in a manifest

var TakeBackUnfinished = takeBackUnfinished

func Listed(dir string) (map[uint64]badger.TableManifest, error) {
	return (&compactions{dir: dir}).list()
}

// ListInstead has the list name some tables in the place of others.
func ListInstead(manifest *os.File, listed, unlisted map[uint64]badger.TableManifest) error {
	return takeBack(manifest, swap{unlisted, listed})
}
