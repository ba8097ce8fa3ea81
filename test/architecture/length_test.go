package architecture

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxLength is what nine of ten functions are shorter than, in lines.
const maxLength = 27

// long are packages in which more than one of ten functions is longer, with how long;
// they may become shorter only.
var long = map[string]int{
	"api/trust":                              29, // checks in a row, each with its reason
	"operator/internal/controller/vdoconfig": 27,
	"operator/internal/render":               28,
}

// Packages with fewer functions than that count only with all others together.
const enough = 50

func TestFunctionsAreShort(t *testing.T) {
	lengths := map[string][]int{}
	var all []int
	for _, p := range productFiles(t) {
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, filepath.Join(root(), p), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				n := positions.Position(f.End()).Line - positions.Position(f.Pos()).Line + 1
				lengths[filepath.Dir(p)] = append(lengths[filepath.Dir(p)], n)
				all = append(all, n)
			}
		}
	}
	require.Less(t, ninth(all), maxLength, "of all functions")
	for dir, of := range lengths {
		if len(of) >= enough {
			require.LessOrEqual(t, ninth(of), max(maxLength-1, long[dir]), "nine of ten functions of %s", dir)
		}
	}
}

// ninth returns the length that nine of ten do not exceed.
func ninth(lengths []int) int {
	slices.Sort(lengths)
	return lengths[len(lengths)-1-len(lengths)/10]
}

// maxLines is how long a file may be.
const maxLines = 400

func TestFilesAreShort(t *testing.T) {
	for _, p := range productFiles(t) {
		data, err := os.ReadFile(filepath.Join(root(), p))
		require.NoError(t, err)
		require.LessOrEqual(t, bytes.Count(data, []byte("\n")), maxLines, "lines of %s", p)
	}
}

// productFiles are the sources of the programs, without generated ones.
func productFiles(t *testing.T) (out []string) {
	t.Helper()
	for _, dir := range []string{"api", "matrix", "bundler", "operator"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root(), dir), func(path string, _ os.DirEntry, err error) error {
			name := filepath.Base(path)
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "zz_generated.") {
				return err
			}
			below, err := filepath.Rel(root(), path)
			out = append(out, filepath.ToSlash(below))
			return err
		}))
	}
	require.Greater(t, len(out), 200)
	return out
}
