package main

import (
	"encoding/json"
	"fmt"
	"os"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/rs/zerolog"
)

// bill writes the software bill of materials of a program, CycloneDX as JSON:
// what the program itself says that it is linked from.
func (r *release) bill(program string, s system) error {
	g, err := bin.NewGenerator(program, bin.WithIncludeStdlib(true), bin.WithLogger(zerolog.New(os.Stderr).Level(zerolog.WarnLevel)))
	if err != nil {
		return fmt.Errorf("bill of materials: %w", err)
	}
	bom, err := g.Generate()
	if err != nil {
		return fmt.Errorf("bill of materials: %w", err)
	}
	tidy(bom, r.product.name)
	if bom.Components == nil || len(*bom.Components) < 10 {
		return fmt.Errorf("bill of materials: %s does not say what it is linked from", program)
	}
	text, err := json.MarshalIndent(bom, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.file(s, ".cdx.json"), append(text, '\n'), 0o644)
}

// tidy takes out what would differ from run to run, and the place where the
// program was built.
func tidy(bom *cdx.BOM, name string) {
	bom.SerialNumber = ""
	if m := bom.Metadata; m != nil {
		m.Timestamp = ""
		if m.Component != nil {
			m.Component.Name = name
		}
	}
}
