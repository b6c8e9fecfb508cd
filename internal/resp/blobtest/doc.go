// Package blobtest makes stores of named values for tests.
// It owns the tiers below them and ends them with the test.
package blobtest
