package simulate

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/kvstored/kvstored/config"
)

// Model is the KV cache groups of a model, as the files that `kvstored-lab replay --simulate
// --groups` reads have them.
type Model struct {
	Model  string       `yaml:"model"`
	Source string       `yaml:"source"` // of the sizes
	Groups []ModelGroup `yaml:"groups"`
}

// ModelGroup is a group of layers.
type ModelGroup struct {
	Kind          string       `yaml:"kind"`            // full, window, local or state
	BytesPerToken config.Bytes `yaml:"bytes_per_token"` // of all but state
	Window        int          `yaml:"window"`          // tokens; of window and local
	StateBytes    config.Bytes `yaml:"state_bytes"`     // of state
	StateEvery    int          `yaml:"state_every"`     // tokens between two states of an engine that keeps each; of state
}

// Dense is what the group takes for a block of so many tokens where an engine keeps
// all of it.
func (g ModelGroup) Dense(tokens int) int64 {
	if g.Kind == "state" {
		return int64(g.StateBytes) * int64(tokens) / int64(g.StateEvery)
	}
	return int64(g.BytesPerToken) * int64(tokens)
}

// The most that a Model can have.
const (
	maxModelGroups = 64
	maxModelTokens = 1 << 24 // of a window, or between two resume points
	maxTokenBytes  = 64 << 20
	maxStateBytes  = 16 << 30
)

//go:embed models/*.yaml
var models embed.FS

// Models are the names that ModelNamed knows.
func Models() (names []string) {
	files, err := models.ReadDir("models")
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

// ModelNamed returns the Model of a name of Models, and of any other the file
// with it. Wrong content is reported as [config.Errors].
func ModelNamed(name string) (m Model, err error) {
	if data, err := models.ReadFile(path.Join("models", name+".yaml")); err == nil {
		return parseModel(name, data)
	}
	err = config.LoadInto(&m, name, nil, m.check)
	if why := errors.Unwrap(err); why != nil { // the file cannot be read
		err = fmt.Errorf("read groups: %w (a file, or one of %s)", why, strings.Join(Models(), ", "))
	}
	return m, err
}

func parseModel(name string, data []byte) (m Model, err error) {
	err = config.DecodeInto(&m, name, data, nil, m.check)
	return m, err
}

// check finds the problems of the values, where they could be read.
func (m *Model) check(meant func(key string) bool) (errs config.Errors) {
	wrong := func(path string, err error) {
		errs = append(errs, &config.Error{Path: path, Text: err.Error()})
	}
	full := false
	for i, g := range m.Groups {
		full = full || g.Kind == "full"
		if err := g.check(); err != nil {
			wrong(fmt.Sprintf("groups[%d]", i), err)
		}
	}
	switch {
	case len(m.Groups) > maxModelGroups:
		wrong("groups", fmt.Errorf("%d groups: use at most %d", len(m.Groups), maxModelGroups))
	case !full && meant("groups"):
		wrong("groups", errors.New("none is full: a prefix of such a model is a window, which has no length"))
	}
	return errs
}

func (g *ModelGroup) check() error {
	switch g.Kind {
	case "full":
		return cmp.Or(g.checkBytes(), g.checkOthers(g.Window != 0 || g.hasState()))
	case "window", "local":
		return cmp.Or(g.checkBytes(), g.checkTokens("window", g.Window), g.checkOthers(g.hasState()))
	case "state":
		if g.StateBytes < 1 || g.StateBytes > maxStateBytes {
			return fmt.Errorf("state_bytes %v: use 1 to %v", g.StateBytes, config.Bytes(maxStateBytes))
		}
		return cmp.Or(g.checkTokens("state_every", g.StateEvery), g.checkOthers(g.Window != 0 || g.BytesPerToken != 0))
	}
	return fmt.Errorf("kind %q: use full, window, local or state", g.Kind)
}

func (g *ModelGroup) hasState() bool { return g.StateBytes != 0 || g.StateEvery != 0 }

func (g *ModelGroup) checkBytes() error {
	if g.BytesPerToken < 1 || g.BytesPerToken > maxTokenBytes {
		return fmt.Errorf("bytes_per_token %v: use 1 to %v", g.BytesPerToken, config.Bytes(maxTokenBytes))
	}
	return nil
}

func (g *ModelGroup) checkTokens(name string, n int) error {
	if n < 1 || n > maxModelTokens {
		return fmt.Errorf("%s %d: use 1 to %d tokens", name, n, maxModelTokens)
	}
	return nil
}

// checkOthers refuses members that are of other kinds.
func (g *ModelGroup) checkOthers(has bool) error {
	if has {
		return fmt.Errorf("kind %s: window is of window and local, state_bytes and state_every are of state, bytes_per_token is of all others", g.Kind)
	}
	return nil
}
