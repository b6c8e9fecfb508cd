//go:build !amd64

package arena

func setWay(bool, bool) {}
