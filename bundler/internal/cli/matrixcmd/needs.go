package matrixcmd

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix/needs"
)

func (w IO) needs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "needs DRIVER@VERSION=FOLDER...",
		Short: "List what releases need of a cluster, from their manifests",
		Long: `Reads the manifests of releases from folders, and prints the matrix with a list of
what each of them needs of a cluster: every object, and of each everything that gives it
power, a line each. The operator installs releases that the matrix lists, and nothing
but what it lists of them. Look at what differs from the release before, then sign it.

The manifests have to be those that the matrix names, by sha256.`,
		Example: `  vdo-bundle matrix needs --matrix matrix.yaml csi@3.7.4=manifests/csi-3.7.4 > new.yaml
  diff matrix.yaml new.yaml
  vdo-bundle matrix sign new.yaml --key release.key`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return flags.Usage(cmd, "missing argument DRIVER@VERSION=FOLDER")
			}
			return nil
		},
	}
	file := matrixFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		doc, _, err := w.load("--matrix", *file)
		if err != nil {
			return err
		}
		var errs []error
		for _, arg := range args {
			errs = append(errs, describe(cmd, doc, arg))
		}
		if err := fault.Join(errs...); err != nil {
			return err
		}
		data, err := doc.Marshal()
		if err != nil {
			return err
		}
		_, err = w.Out.Write(data)
		return err
	}
	return cmd
}

// describe lists what one release needs.
func describe(cmd *cobra.Command, doc *matrix.Document, arg string) error {
	text, folder, ok := strings.Cut(arg, "=")
	if !ok || folder == "" {
		return flags.Usage(cmd, arg+" is not DRIVER@VERSION=FOLDER")
	}
	id, err := matrix.ParseReleaseID(text)
	if err != nil {
		return flags.Usage(cmd, err.Error())
	}
	files := map[string][]byte{}
	for _, r := range doc.Releases {
		if r.ReleaseID.Compare(id) != 0 {
			continue
		}
		for _, m := range r.Manifests {
			data, err := userfile.Read("FOLDER", filepath.Join(folder, m.Name), maxManifest)
			if err != nil {
				return err
			}
			files[m.Name] = data
		}
	}
	return needs.Describe(doc, id, files)
}
