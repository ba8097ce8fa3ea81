package matrixcmd_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/cli/matrixcmd"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// update rewrites what scripts compare with.
var update = flag.Bool("update", false, "rewrite the expected output of the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"vdo-bundle": program})
}

// program is the command alone, at the time that TEST_NOW names.
func program() {
	root := &cobra.Command{Use: "vdo-bundle", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(matrixcmd.New(matrixcmd.IO{Out: os.Stdout, Err: os.Stderr, Now: now}))
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, fault.Text(err))
		os.Exit(1)
	}
}

func now() time.Time {
	t, err := time.Parse(time.RFC3339, os.Getenv("TEST_NOW"))
	if err != nil {
		panic(err)
	}
	return t
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TEST_NOW", "2027-01-01T00:00:00Z")
			return keys(env.WorkDir)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"cosign": func(ts *testscript.TestScript, neg bool, args []string) {
				err := ts.Exec(toolchain.Path(t, "cosign"), args...)
				if (err != nil) != neg {
					ts.Fatalf("cosign %v: %v", args, err)
				}
			},
		},
	})
}

type keyPair struct{ private, public []byte }

// made is one key pair of password "secret" for all scripts: it costs scrypt, more
// than a second under the race detector.
var made = sync.OnceValues(func() (pair keyPair, err error) {
	pair.private, pair.public, err = trust.GenerateKey([]byte("secret"))
	return pair, err
})

// keys puts the key pair into a folder.
func keys(dir string) error {
	pair, err := made()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "release.key"), pair.private, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "release.pub"), pair.public, 0o600)
}
