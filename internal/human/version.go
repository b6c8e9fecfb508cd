package human

import (
	"regexp"
	"runtime"
	"runtime/debug"
)

// VersionNumber is the version of this source (semver.org). A release changes it,
// the line of the Python client that the test names, and the changelog.
const VersionNumber = "v0.1.0"

// Version is what this program was built from.
type Version struct {
	Version  string `json:"version"`            // VersionNumber
	Commit   string `json:"commit,omitempty"`   // 12 digits or more; "" where the build has no record of it
	Modified bool   `json:"modified,omitempty"` // files differed from the commit
	Go       string `json:"go"`                 // version of the toolchain
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// GetVersion reads the build's record of this program.
func GetVersion() Version {
	record, _ := debug.ReadBuildInfo() // nil without one
	return infoOf(record)
}

// pseudo is the end of a module version that names a commit, as the go command
// makes it for `go install module@commit` (go.dev/ref/mod#pseudo-versions).
var pseudo = regexp.MustCompile(`[.-]\d{14}-([0-9a-f]{12})(\+incompatible)?$`)

func infoOf(record *debug.BuildInfo) Version {
	info := Version{Version: VersionNumber, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if record == nil {
		return info
	}
	for _, s := range record.Settings { // of a build in a checkout
		switch s.Key {
		case "vcs.revision":
			info.Commit = s.Value
		case "vcs.modified":
			info.Modified = s.Value == "true"
		}
	}
	if m := pseudo.FindStringSubmatch(record.Main.Version); info.Commit == "" && m != nil {
		info.Commit = m[1]
	}
	return info
}

// VersionText is the version with the commit as build metadata, such as
// v0.1.0+1f0c2a9b77d3 or, with files that differ from it,
// v0.1.0+1f0c2a9b77d3.modified.
func (i Version) String() string {
	if i.Commit == "" {
		return i.Version
	}
	s := i.Version + "+" + i.Commit[:min(len(i.Commit), 12)]
	if i.Modified {
		s += ".modified"
	}
	return s
}

// VersionText is Get().String().
func VersionText() string { return GetVersion().String() }
