package report

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kvstored/kvstored/internal/chart"
	"github.com/kvstored/kvstored/internal/version"
)

// Page is a page that opens offline.
type Page struct {
	Style           template.CSS // of the charts; Write sets it
	Title, Subtitle string
	Headlines       []headline
	Charts          []figure
	Tables          []reportTable
	Facts           []fact
	Simulated       bool // no bytes were moved that could be wrong
	OK              bool // no byte was wrong
	Footer          string
}

type headline struct{ Value, Label string }

type fact struct{ Name, Value string }

type reportTable struct {
	Title, Note string
	Head        []string
	Rows        [][]cell // the first cell names the row
}

type cell struct {
	Text  string
	Class string // best or bound, for a policy that is
}

func cells(texts ...string) (row []cell) {
	for _, text := range texts {
		row = append(row, cell{Text: text})
	}
	return row
}

type figure struct {
	Title, Note string
	Legend      []legend
	SVG         template.HTML // of package chart, which escapes its texts
	Wide        bool
}

type legend struct {
	color chart.Color
	Label string
}

// Swatch is the class of the sample beside the label.
func (l legend) Swatch() string { return l.color.Swatch() }

//go:embed report.html
var reportHTML string

var reportPage = template.Must(template.New("report").Parse(reportHTML))

// ErrFormat is a name whose ending says that another format is asked for.
var ErrFormat = errors.New("a report is a page in HTML, with charts in SVG; end its name in .html")

// graphics are endings that people may expect to choose a format.
var graphics = []string{".svg", ".png", ".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".eps", ".ps", ".tif", ".tiff"}

// CanWrite says before the work that its report, if any, cannot be written.
// It leaves an older file as it is.
func CanWrite(path string) error {
	if path == "" {
		return nil
	}
	if slices.Contains(graphics, strings.ToLower(filepath.Ext(path))) {
		return fmt.Errorf("report: %s: %w", path, ErrFormat)
	}
	_, was := os.Stat(path)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	f.Close()
	if errors.Is(was, fs.ErrNotExist) {
		return os.Remove(path)
	}
	return nil
}

// Write writes a page to a file.
func Write(path string, r *Page) (err error) {
	for i := range r.Headlines {
		r.Headlines[i].Value = strings.Replace(r.Headlines[i].Value, " us", " µs", 1)
	}
	for i := range r.Facts {
		r.Facts[i].Value = strings.ReplaceAll(r.Facts[i].Value, " us", " µs")
	}
	r.Style = template.CSS(chart.Style())
	r.Footer = fmt.Sprintf("kvstored %s, %s", version.String(), time.Now().Format("2 January 2006, 15:04"))
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := errors.Join(reportPage.Execute(f, r), f.Close()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
