package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of the operator's code no file is above 400 lines, no function takes seven parameters,
// and nine of ten functions are below 27 lines.
func TestFilesAndFunctionsOfTheOperatorAreShort(t *testing.T) {
	var lengths []int
	err := filepath.WalkDir(filepath.Join(root(), "operator"), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			return err
		}
		if end := set.Position(file.End()).Line; end > 400 {
			t.Errorf("%s has %d lines: split it where its story parts", name, end)
		}
		for _, declared := range file.Decls {
			f, ok := declared.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lengths = append(lengths, set.Position(f.End()).Line-set.Position(f.Pos()).Line+1)
			if n := f.Type.Params.NumFields(); n >= 7 && f.Name.Name != "Eventf" { // client-go's interface
				t.Errorf("%s takes %d parameters: make a struct of what it takes", set.Position(f.Pos()), n)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(lengths), 500, "the operator has been found")
	slices.Sort(lengths)
	require.Less(t, lengths[len(lengths)*9/10], 27, "the 90th percentile of function length")
}

// Controllers are made on one skeleton: none gets its resource, keeps its finalizer or
// writes its status by itself.
func TestControllersHaveOneSkeleton(t *testing.T) {
	for _, kind := range []string{"driverbundle", "vspherecloudconfig", "vdoconfig"} {
		path := module + "/operator/internal/controller/" + kind
		found := false
		for _, p := range list(t) {
			if p.ImportPath == path {
				found = true
				require.Contains(t, p.Imports, module+"/operator/internal/controller/reconciler", path)
			}
		}
		require.True(t, found, "there is no package %s: mend the list in this test", path)
		files, err := filepath.Glob(filepath.Join(root(), "operator/internal/controller", kind, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.SelectorExpr); ok {
					require.NotContains(t, []string{"AddFinalizer", "RemoveFinalizer", "Requeue"}, call.Sel.Name, "%s: the skeleton does that", set.Position(n.Pos()))
				}
				return true
			})
		}
	}
}
