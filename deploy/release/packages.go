package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers deb
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers rpm
)

// need are the packages that another is installed with, under each packager's
// names: what makes the user, and what HTTPS is checked with.
var need = map[string]struct{ depends, recommends []string }{
	"deb": {[]string{"passwd"}, []string{"ca-certificates"}},
	"rpm": {[]string{"shadow-utils"}, []string{"ca-certificates"}},
}

// packages writes the deb and the rpm of a program.
func (r *release) packages(program string, extras []extra, s system) error {
	folder, err := os.MkdirTemp("", "kvstored-package-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	contents, err := r.contents(folder, program, extras)
	if err != nil {
		return err
	}
	for format, needed := range need {
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: r.product.name, Arch: s.arch, Platform: "linux", Version: r.version,
			Section: "net", Priority: "optional", License: "Apache-2.0",
			Maintainer:  "kvstored <kvstored@users.noreply.github.com>",
			Homepage:    "https://github.com/kvstored/kvstored",
			Description: r.about,
			MTime:       r.date,
			Overridables: nfpm.Overridables{
				RPM:      nfpm.RPM{BuildHost: "localhost"}, // not the name of this machine
				Contents: contents,
			},
		})
		if r.unit != "" {
			info.Depends, info.Recommends = needed.depends, needed.recommends
			info.Scripts = nfpm.Scripts{PostInstall: r.script("postinstall.sh"), PreRemove: r.script("preremove.sh"), PostRemove: r.script("postremove.sh")}
		}
		if err := r.pack(format, info); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

func (r *release) script(name string) string {
	return filepath.Join(r.source, r.scripts, name)
}

// pack writes a package.
func (r *release) pack(format string, info *nfpm.Info) (err error) {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(r.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer func() {
		if e := file.Close(); err == nil {
			err = e
		}
	}()
	return packager.Package(info, file)
}

// contents are the files of a package. What is made for it lies in folder.
func (r *release) contents(folder, program string, extras []extra) (files.Contents, error) {
	list := files.Contents{r.put(program, "/usr/bin/"+r.product.name, 0o755)}
	if r.unit != "" {
		unit, err := r.packaged(folder)
		if err != nil {
			return nil, err
		}
		list = append(list, r.put(unit, "/usr/lib/systemd/system/"+filepath.Base(r.product.unit), 0o644),
			&files.Content{Source: filepath.Join(r.source, r.example), Destination: r.etc, Type: files.TypeConfigNoReplace, FileInfo: &files.ContentFileInfo{Mode: 0o644, MTime: r.date}})
	}
	for source, name := range map[string]string{"LICENSE": "copyright", "NOTICE": "NOTICE", "THIRD_PARTY": "THIRD_PARTY", "CHANGELOG.md": "CHANGELOG.md"} {
		list = append(list, r.put(filepath.Join(r.source, source), "/usr/share/doc/"+r.product.name+"/"+name, 0o644))
	}
	for _, e := range extras {
		path, text := filepath.Join(folder, filepath.Base(e.name)), e.text
		place := map[string]string{
			".bash": "/usr/share/bash-completion/completions/" + r.product.name,
			".zsh":  "/usr/share/zsh/site-functions/_" + r.product.name,
			".fish": "/usr/share/fish/vendor_completions.d/" + r.product.name + ".fish",
		}[filepath.Ext(e.name)]
		if place == "" {
			var packed bytes.Buffer
			if err := pack(&packed, text); err != nil {
				return nil, err
			}
			place, text = "/usr/share/man/man1/"+filepath.Base(e.name)+".gz", packed.Bytes()
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return nil, err
		}
		list = append(list, r.put(path, place, 0o644))
	}
	return list, nil
}

func (r *release) put(source, destination string, mode os.FileMode) *files.Content {
	return &files.Content{Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: r.date}}
}

// packaged writes the unit for a program that a package has installed.
func (r *release) packaged(folder string) (string, error) {
	text, err := os.ReadFile(filepath.Join(r.source, r.unit))
	if err != nil {
		return "", err
	}
	byHand, packaged := "ExecStart=/usr/local/bin/"+r.product.name+" ", "ExecStart=/usr/bin/"+r.product.name+" "
	if strings.Count(string(text), byHand) != 1 {
		return "", fmt.Errorf("%s has no single line %s", r.unit, byHand)
	}
	path := filepath.Join(folder, filepath.Base(r.unit))
	return path, os.WriteFile(path, []byte(strings.Replace(string(text), byHand, packaged, 1)), 0o644)
}
