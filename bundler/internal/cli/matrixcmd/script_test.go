package matrixcmd_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/cli/matrixcmd"
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
			return nil
		},
	})
}
