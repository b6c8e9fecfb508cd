//go:build !linux

package disk

import "testing"

func smallFileSystem(t *testing.T, _ int64) (dir string, unmount func()) {
	t.Helper()
	t.Skip("only on Linux")
	return "", nil
}

func breakableFileSystem(t *testing.T, _ int64) (dir string, fail, unmount func()) {
	t.Helper()
	t.Skip("only on Linux")
	return "", nil, nil
}

func readOnlyMount(t *testing.T) (dir string, remount func()) {
	t.Helper()
	t.Skip("only on Linux")
	return "", nil
}
