package kvstored_test

import (
	"go/ast"
	"go/token"
	"maps"
	"strconv"
	"strings"
)

// declared is what a type declares: its methods, the functions of its package that take it
// first, and the types of the module that it embeds, by "package.Type".
type declared struct {
	declared bool
	methods  map[string]bool
	first    int
	embeds   []string
}

// methodSets counts the methods of each type, those that embedded types promote, and the
// functions of its package that take it first: what a reader meets who asks what can be done
// with one. Tests and generated files do not count, nor handlers, which are the rows of a table.
func methodSets(all []source) map[string]int {
	types := make(map[string]*declared)
	of := func(name string) *declared {
		if types[name] == nil {
			types[name] = &declared{methods: make(map[string]bool)}
		}
		return types[name]
	}
	for _, s := range all {
		if s.tests || ast.IsGenerated(s.ast) {
			continue
		}
		for _, d := range s.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if typ := receiver(d); typ != "" {
					of(s.pkg + "." + typ).methods[d.Name.Name] = true
				} else if typ := firstParameter(d); typ != "" && !strings.HasPrefix(d.Name.Name, "handle") {
					of(s.pkg+"."+typ).first++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						declare(of(s.pkg+"."+spec.Name.Name), &s, spec.Type)
					}
				}
			}
		}
	}
	sets := make(map[string]int)
	for name, d := range types {
		if d.declared { // else it is Go's own, or another module's
			sets[name] = len(promoted(types, name, make(map[string]bool))) + d.first
		}
	}
	return sets
}

// declare adds what the type expression of a declaration says.
func declare(to *declared, s *source, typ ast.Expr) {
	to.declared = true
	switch typ := typ.(type) {
	case *ast.StructType:
		for _, field := range typ.Fields.List {
			if len(field.Names) == 0 {
				to.embeds = append(to.embeds, typeName(s, field.Type))
			}
		}
	case *ast.InterfaceType:
		for _, method := range typ.Methods.List {
			for _, name := range method.Names {
				to.methods[name.Name] = true
			}
			if len(method.Names) == 0 {
				to.embeds = append(to.embeds, typeName(s, method.Type))
			}
		}
	}
}

// promoted is the names of all methods of a type. Methods of another package are promoted
// where they are exported.
func promoted(types map[string]*declared, name string, seen map[string]bool) map[string]bool {
	d := types[name]
	if d == nil || seen[name] {
		return nil
	}
	seen[name] = true
	methods := maps.Clone(d.methods)
	for _, embedded := range d.embeds {
		here := packageOf(embedded) == packageOf(name)
		for method := range promoted(types, embedded, seen) {
			if here || ast.IsExported(method) {
				methods[method] = true
			}
		}
	}
	return methods
}

func packageOf(name string) string { return name[:max(0, strings.LastIndexByte(name, '.'))] }

// firstParameter is the type of the package that a function takes first, or "".
func firstParameter(f *ast.FuncDecl) string {
	if f.Recv != nil || len(f.Type.Params.List) == 0 {
		return ""
	}
	pkg, typ, _ := strings.Cut(typeName(&source{}, f.Type.Params.List[0].Type), ".")
	if pkg != "" {
		return ""
	}
	return typ
}

// typeName is a type of the module, or a pointer to one, as "package.Type", else "".
func typeName(s *source, typ ast.Expr) string {
	switch x := typ.(type) {
	case *ast.StarExpr:
		return typeName(s, x.X)
	case *ast.IndexExpr:
		return typeName(s, x.X)
	case *ast.IndexListExpr:
		return typeName(s, x.X)
	case *ast.Ident:
		return s.pkg + "." + x.Name
	case *ast.SelectorExpr:
		if pkg, ok := x.X.(*ast.Ident); ok && s.ast != nil {
			return imported(s.ast, pkg.Name) + "." + x.Sel.Name
		}
	}
	return ""
}

// imported is the folder of the module that a file imports under a name, or "".
func imported(file *ast.File, name string) string {
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		folder, ours := strings.CutPrefix(path, "github.com/kvstored/kvstored/")
		base := folder[strings.LastIndexByte(folder, '/')+1:]
		if spec.Name != nil {
			base = spec.Name.Name
		}
		if err == nil && ours && base == name && token.IsIdentifier(base) {
			return folder
		}
	}
	return ""
}
