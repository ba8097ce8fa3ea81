package toolchain

import (
	"debug/elf"
	"debug/gosym"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// One import that executes templates makes the linker keep each exported method of every
// type: a fifth of the program's size and of what it keeps in memory on every control plane.
func TestNoTemplatesAreLinkedIntoTheOperator(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads ELF files")
	}
	dir := t.TempDir()
	require.NoError(t, Programs(t.Context(), dir, "./operator/cmd/vdo-operator", "./operator/cmd/vdoctl"))
	for _, program := range []string{"vdo-operator", "vdoctl"} {
		symbols := functions(t, filepath.Join(dir, program))
		require.NotNil(t, symbols.LookupFunc("main.main"), program)
		require.Nil(t, symbols.LookupFunc("text/template.(*Template).Execute"), "%s: something that it imports executes templates", program)
		require.Nil(t, symbols.LookupFunc("html/template.(*Template).Execute"), "%s: something that it imports executes templates", program)
	}
}

// functions are those of a program, by the table that a stripped one has too.
func functions(t *testing.T, file string) *gosym.Table {
	t.Helper()
	f, err := elf.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	table, text := f.Section(".gopclntab"), f.Section(".text")
	require.NotNil(t, table)
	data, err := table.Data()
	require.NoError(t, err)
	symbols, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	require.NoError(t, err)
	return symbols
}

// A commit that the checkout does not have, as a shallow clone has not, is told apart from one
// that cannot be built.
func TestAnEarlierVersionThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	err := Earlier(t.Context(), strings.Repeat("0", 40), dir, "./operator/cmd/vdo-operator")
	require.ErrorIs(t, err, ErrNoHistory)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
