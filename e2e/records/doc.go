// Package records reads what a daemon that has ended left in its database, for end-to-end
// tests that compare it with what the next one says.
//
// It holds no lock and no buffer.
package records
