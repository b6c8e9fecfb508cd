//go:build !linux

package accept

// halfClosed is no event: poll does not tell a half-closed connection here.
const halfClosed = 0
