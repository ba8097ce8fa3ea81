package architecture

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
