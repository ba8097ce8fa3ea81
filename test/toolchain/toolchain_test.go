package toolchain

import (
	"bytes"
	"context"
	"debug/elf"
	"debug/gosym"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryToolHasAModule(t *testing.T) {
	for name, src := range sources {
		mod, err := os.ReadFile(filepath.Join(Root(), "scripts", "tools", src.module, "go.mod"))
		require.NoError(t, err, name)
		require.True(t, strings.Contains(string(mod), src.pkg+"\n"), "%s: go.mod of %s has no tool %s", name, src.module, src.pkg)
	}
}

func TestKubernetesVersionIsTheModules(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(Root(), "scripts", "tools", "kubernetes", "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(mod), "k8s.io/kubernetes v"+kubernetesVersion)
}

func TestAssetsOfEnvtestServeWhereTheirMinorVersionDoes(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	want := filepath.Join(dir, "etcd")
	const program = "#!/bin/sh\necho Kubernetes v1.33.0\n"
	require.NoError(t, os.WriteFile(want, []byte(program), 0o755)) //nolint:gosec // a program must be executable
	got, err := Ensure(context.Background(), io.Discard, Tool{Name: "etcd"})
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, want, installed(t.Context(), Tool{Name: "etcd", Version: "1.33.4"}))
	require.Empty(t, installed(t.Context(), Tool{Name: "etcd", Version: "1.3.4"}))
	require.Empty(t, installed(t.Context(), Tool{Name: "etcd", Version: "1.34.0"}))
	require.Empty(t, installed(t.Context(), Tool{Name: "kubectl"}))
}

// The module cache of a fresh machine is empty; its proxy is here the cache of this one.
func TestAModuleThatIsNotThereYetIsFetched(t *testing.T) {
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	t.Setenv("GOPROXY", "file://"+filepath.Join(strings.TrimSpace(string(out)), "cache", "download"))
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("GOMODCACHE", t.TempDir())
	dir, err := ModuleDir(t.Context(), "kwok", "sigs.k8s.io/kwok")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "kustomize", "stage", "pod", "fast", "pod-ready.yaml"))

	_, err = ModuleDir(t.Context(), "kwok", "example.test/no-such-module")
	require.ErrorContains(t, err, "example.test/no-such-module")
}

// Tests of several packages share one build, and each has a program of its own.
func TestProgramsOfTheProjectAreBuiltOnce(t *testing.T) {
	const name, pkg = "vdo-bundle", "./bundler/cmd/vdo-bundle"
	t.Setenv(ProgramsVariable, "") // the runner's may be built otherwise
	built, dir := filepath.Join(Root(), "bin", "test"), t.TempDir()
	require.NoError(t, Programs(t.Context(), dir, pkg))
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, name), "--help").CombinedOutput()
	require.NoError(t, err, "%s", out)
	shared, err := os.Stat(filepath.Join(built, name))
	require.NoError(t, err)
	own, err := os.Stat(filepath.Join(dir, name))
	require.NoError(t, err)
	require.False(t, os.SameFile(shared, own))

	var again bytes.Buffer // what the next one runs
	sh := Builder{}.shell(Root())
	sh.Echo = func(string) io.Writer { return &again }
	_, err = sh.Run(t.Context(), "go", append(Builder{}.projectArgs(built), "-x", pkg)...)
	require.NoError(t, err)
	require.NotContains(t, again.String(), "/link ")
	require.ErrorContains(t, Programs(t.Context(), dir, "./bundler/cmd/none"), "bundler/cmd/none")
}

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
