package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func newMatrixImportCommand(a *app) *cobra.Command {
	c := &common{app: a}
	var manifests string
	var serial int64
	var days int
	cmd := &cobra.Command{
		Use:   "import LEGACY.json",
		Short: "Make a matrix of the former operator's compatibility file",
		Long: `Reads the compatibility matrix of the former operator (JSON) and prints it as a
matrix document. The file has neither sizes nor sha256 sums. They come from the
built-in matrix (or --matrix) if it lists the same address, else from the manifests
in --manifest-dir, as DIR/DRIVER/VERSION/FILE. import names every file that neither
has, and then writes nothing.`,
		Example: `  vdo-bundle matrix import compat.json -o matrix.yaml
  vdo-bundle matrix import compat.json --manifest-dir manifests --serial 12 -o matrix.yaml`,
		Args: flags.Exactly("LEGACY.json"),
	}
	known := cmd.Flags().String("matrix", "", "matrix in `FILE` that completes the import (default: built in)")
	c.bindOutput(cmd, "`FILE` to write to, - for standard output")
	cmd.Flags().StringVar(&manifests, "manifest-dir", "", "`FOLDER` of manifests, as DRIVER/VERSION/FILE")
	cmd.Flags().Int64Var(&serial, "serial", 1, "serial of the new matrix: more than that of any matrix that sites know")
	cmd.Flags().IntVar(&days, "valid-days", 365, "days from now until it expires")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if serial < 1 || days < 1 {
			return badForm("--serial and --valid-days", fmt.Sprintf("%d, %d", serial, days), errors.New("they are 1 or more"))
		}
		now := c.now().UTC().Truncate(time.Second)
		return c.convert(args[0], *known, matrix.ImportOptions{
			Serial: serial, Issued: now, Expires: now.AddDate(0, 0, days),
			File: manifestsBelow(manifests),
		})
	}
	return cmd
}

func (c *common) convert(from, known string, options matrix.ImportOptions) error {
	data, err := userfile.Read("LEGACY.json", from, matrix.MaxSize)
	if err != nil {
		return err
	}
	if options.Known, _, err = c.loadMatrix("--matrix", known); err != nil {
		return err
	}
	doc, remarks, err := matrix.ImportLegacy(from, data, options)
	if err != nil {
		return err
	}
	for _, r := range remarks {
		c.say("note: %s", r)
	}
	written, err := doc.Marshal()
	if err != nil {
		return err
	}
	return c.deliver(c.dest, written, "")
}

// manifestsBelow looks for a manifest below a folder, the version with and without a v, and
// says where it belongs.
func manifestsBelow(dir string) func(matrix.ReleaseID, string) ([]byte, string, error) {
	return func(id matrix.ReleaseID, name string) ([]byte, string, error) {
		place := filepath.Join(string(id.Driver), id.Version.String(), name)
		if dir == "" {
			return nil, filepath.Join("manifests", place) + " and give --manifest-dir manifests", nil
		}
		if _, err := os.Stat(dir); err != nil {
			return nil, "", userfile.Unreadable("--manifest-dir", dir, err)
		}
		for _, version := range []string{id.Version.String(), "v" + id.Version.String()} {
			file := filepath.Join(dir, string(id.Driver), version, name)
			data, err := userfile.Read("--manifest-dir", file, matrix.MaxManifestSize)
			if fault.ReasonOf(err) != fault.NotFound {
				return data, filepath.Join(dir, place), err
			}
		}
		return nil, filepath.Join(dir, place), nil
	}
}
