//go:build !linux

package arena

import "errors"

func memoryLimit() (int64, string, error) { return 0, "", errors.ErrUnsupported }
