package folders

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// member is a line of the file MembersName: a path of the set.
type member struct {
	index int
	dir   string
}

func (s *Set) listMembers() (list []member, err error) {
	path := filepath.Join(s.meta, MembersName)
	text, err := s.Meta.Read(MembersName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("disk: %s: empty: %w", path, ErrGarbled)
	}
	for line := range strings.Lines(string(text)) {
		number, quoted, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		index, err := strconv.Atoi(number)
		dir, err2 := strconv.Unquote(quoted)
		if err := errors.Join(err, err2); err != nil || index < 0 || index >= MaxPaths {
			return nil, fmt.Errorf("disk: %s: the line %q: %w", path, line, ErrGarbled)
		}
		list = append(list, member{index, dir})
	}
	return list, nil
}

func (s *Set) writeMembers() error {
	var text []byte
	for _, m := range s.members {
		text = fmt.Appendf(text, "%d %q\n", m.index, m.dir)
	}
	if old, err := s.Meta.Read(MembersName); err == nil && string(old) == string(text) {
		return nil
	}
	return s.Meta.Replace(MembersName, text)
}
