package main

import (
	"context"
	"fmt"
	"os"
	"path"

	"github.com/kvstored/kvstored/internal/test/nested"
)

func main() {
	for _, p := range []nested.Program{nested.Gateway, nested.FaultFS, nested.Release} {
		fmt.Fprintf(os.Stderr, "building %s; the first time that takes up to two minutes\n", path.Base(p.Pkg))
		program, err := p.Build(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(program)
	}
}
