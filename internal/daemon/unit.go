package daemon

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// unitFolders are where systemd looks for units, the first first.
var unitFolders = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// UnitStop is how long systemd lets the unit kvstored.service take to stop, as its
// files say, and the file that says it; false where there is no unit or it says
// nothing.
func UnitStop() (limit time.Duration, file string, ok bool) { return unitStop(unitFolders) }

func unitStop(folders []string) (limit time.Duration, file string, ok bool) {
	const unit = "kvstored.service"
	var files []string
	for _, folder := range folders {
		if path := filepath.Join(folder, unit); len(files) == 0 && exists(path) {
			files = append(files, path) // the others are hidden by it
		}
	}
	for _, folder := range folders {
		more, _ := filepath.Glob(filepath.Join(folder, unit+".d", "*.conf")) // the pattern is good
		files = append(files, more...)
	}
	for _, path := range files {
		if d, said := stopIn(path); said {
			limit, file, ok = d, path, true
		}
	}
	return limit, file, ok
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// stopIn is what one file says.
func stopIn(path string) (limit time.Duration, said bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if name = strings.TrimSpace(name); name == "TimeoutStopSec" || name == "TimeoutSec" {
			if d, ok := unitTime(strings.TrimSpace(value)); ok {
				limit, said = d, true
			}
		}
	}
	return limit, said
}

// unitTime reads a time of systemd's: a number of seconds, or numbers with units.
// Infinity is 0, as 0 is to systemd.
func unitTime(text string) (d time.Duration, ok bool) {
	if text == "infinity" {
		return 0, true
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 {
		return time.Duration(n * float64(time.Second)), true
	}
	short := strings.NewReplacer(" ", "", "minutes", "m", "minute", "m", "min", "m", "seconds", "s", "second", "s", "sec", "s", "hours", "h", "hour", "h", "hr", "h")
	d, err := time.ParseDuration(short.Replace(text))
	return d, err == nil && d >= 0
}
