package record

import "github.com/kvstored/kvstored/key"

// Prefixes keep the kinds apart, so that a scan of entries reads no payload.
const (
	prefixEntry    = 'e'
	prefixPayload  = 'p'
	prefixDeletion = 'g'
	prefixCommits  = 'c'
)

// KeyBytes is the size of entry and payload keys: prefix, space, hash.
const KeyBytes = 1 + 16 + 16

// EntryPrefix begins every entry key and nothing else.
func EntryPrefix() []byte { return []byte{prefixEntry} }

// EntryKey is the database key of k's entry.
func EntryKey(k key.Key) [KeyBytes]byte { return chunkKey(prefixEntry, k) }

// ParseEntryKey undoes EntryKey. It reports false for any other key.
func ParseEntryKey(b []byte) (k key.Key, ok bool) {
	if len(b) != KeyBytes || b[0] != prefixEntry {
		return key.Key{}, false
	}
	copy(k.Space[:], b[1:17])
	copy(k.Hash[:], b[17:])
	return k, true
}

// PayloadKey is the database key of k's payload when its entry is inline. The
// value is the bare payload; the entry holds its checksum.
func PayloadKey(k key.Key) [KeyBytes]byte { return chunkKey(prefixPayload, k) }

func chunkKey(prefix byte, k key.Key) [KeyBytes]byte {
	var b [KeyBytes]byte
	b[0] = prefix
	copy(b[1:], k.Space[:])
	copy(b[17:], k.Hash[:])
	return b
}

// DeletionKey is the database key of the note that k was deleted before it was
// known which copies there are. The value is DeletionBytes.
func DeletionKey(k key.Key) [KeyBytes]byte { return chunkKey(prefixDeletion, k) }

// DeletionPrefix begins every such key and nothing else.
func DeletionPrefix() []byte { return []byte{prefixDeletion} }

// ParseDeletionKey undoes DeletionKey. It reports false for any other key.
func ParseDeletionKey(b []byte) (k key.Key, ok bool) {
	if len(b) != KeyBytes || b[0] != prefixDeletion {
		return key.Key{}, false
	}
	copy(k.Space[:], b[1:17])
	copy(k.Hash[:], b[17:])
	return k, true
}

// CommitsKey is the database key of the number of the last commit.
func CommitsKey() []byte { return []byte{prefixCommits} }
