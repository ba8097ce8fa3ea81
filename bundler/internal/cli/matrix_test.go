package cli_test

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/cli"
)

// update rewrites what scripts compare with.
var update = flag.Bool("update", false, "rewrite the expected output of the scripts")

// program is vdo-bundle at the time that TEST_NOW names.
func program() {
	now, err := time.Parse(time.RFC3339, os.Getenv("TEST_NOW"))
	if err != nil {
		panic(err)
	}
	os.Exit(cli.RunAt(now))
}

func TestMatrixScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/matrix", RequireExplicitExec: true, UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TEST_NOW", "2027-01-01T00:00:00Z")
			return nil
		},
	})
}
