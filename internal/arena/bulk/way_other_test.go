//go:build !amd64

package bulk

func setWay(bool, bool) {}
