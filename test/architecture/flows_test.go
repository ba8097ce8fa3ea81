package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// flows are the packages of bundler that tell what it does, with what they share.
var flows = []string{
	"bundler/lock", "bundler/pull", "bundler/push", "bundler/export", "bundler/outdated", "bundler/sign", "bundler/verify", "bundler/list", "bundler/prune", "bundler/inspect", "bundler/evidence", "bundler/diff",
	"bundler/internal/run", "bundler/internal/medium", "bundler/internal/pinned", "bundler/internal/mover", "bundler/internal/signatures", "bundler/internal/upstream", "bundler/internal/provenance", "bundler/internal/matrixfile",
	"api/bundle",
}

// What a medium can do besides being read or written is in medium.Capabilities, which
// wrappers pass on. A type assertion to an interface finds nothing behind a wrapper.
// Inputs are in structs with names: no one counts to the seventh argument. Flows speak to media
// through bundler/internal/medium alone; that no medium knows a flow is in the floors.
func TestFlowsFindNoPowersByTypeAssertionAndTakeStructs(t *testing.T) {
	for _, dir := range flows {
		eachNode(t, dir, func(at token.Position, n ast.Node) {
			switch n := n.(type) {
			case *ast.FuncDecl:
				require.Less(t, n.Type.Params.NumFields(), 7, "%s: make a struct of what it takes", at)
			case *ast.ImportSpec:
				require.NotRegexp(t, "/bundler/(remote|internal/(archive|manifests|serve))\"", n.Path.Value, "%s: use a medium", at)
			case *ast.TypeAssertExpr:
				require.False(t, mayBeInterface(n.Type), "%s: ask for capabilities", at)
			}
		})
	}
}

// eachNode visits the syntax of a package's files but tests.
func eachNode(t *testing.T, dir string, visit func(at token.Position, n ast.Node)) {
	files, err := filepath.Glob(filepath.Join(root(), dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if n != nil {
				visit(set.Position(n.Pos()), n)
			}
			return true
		})
	}
}

// mayBeInterface tells an asserted type that may be an interface, by its form: a name or
// an interface in place. Pointers, slices and the like are concrete.
func mayBeInterface(e ast.Expr) bool {
	switch e.(type) {
	case *ast.Ident, *ast.SelectorExpr, *ast.InterfaceType:
		return true
	}
	return false
}

// Controllers are made on one skeleton: none gets its resource, keeps its finalizer or
// writes its status by itself.
func TestControllersHaveOneSkeleton(t *testing.T) {
	all := list(t)
	for _, kind := range []string{"driverbundle", "vspherecloudconfig", "vdoconfig"} {
		require.Contains(t, all[module+"/operator/internal/controller/"+kind], module+"/operator/internal/controller/reconciler")
		eachNode(t, "operator/internal/controller/"+kind, func(at token.Position, n ast.Node) {
			if call, ok := n.(*ast.SelectorExpr); ok {
				require.NotContains(t, []string{"AddFinalizer", "RemoveFinalizer", "Requeue"}, call.Sel.Name, "%s: the skeleton does that", at)
			}
		})
	}
}

// A type has at most fifteen fields: one with more is several. An embedded one counts once.
func TestTypesOfTheOperatorAreSmall(t *testing.T) {
	for path := range list(t) {
		dir, _ := strings.CutPrefix(path, module+"/")
		if dir != "operator" && !strings.HasPrefix(dir, "operator/") {
			continue
		}
		eachNode(t, dir, func(at token.Position, n ast.Node) {
			if s, ok := n.(*ast.StructType); ok {
				require.LessOrEqual(t, s.Fields.NumFields(), 15, "%s: make several types of it", at)
			}
		})
	}
}
