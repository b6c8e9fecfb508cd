package metadata

// Bytes that the database holds for an entry in its tables, with keys, filters
// and the index of blocks: measured after a compaction, to about a tenth.
const (
	recordCost  = 130 // of the record
	payloadCost = 40  // of a payload in the database, beside its bytes and a block's
	blockCost   = 128 // of a payload that fills a block of 4 KiB, at most
)

// removalCost is how many bytes a commit adds for each key that it deletes, until
// a compaction drops the deletion and the deleted record.
const removalCost = 80

// HeldBytes is how many bytes the database holds for a payload of n bytes.
func HeldBytes(n int64, inline bool) int64 {
	if inline {
		return recordCost + payloadCost + n + min(n/32, blockCost)
	}
	return recordCost
}
