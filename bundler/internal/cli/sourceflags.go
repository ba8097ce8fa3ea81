package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/manifests"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/matrixfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/lock"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// world is what lock and pull read from.
type world struct {
	matrix    matrixfile.File
	client    *remote.Client
	registry  medium.Registry
	manifests upstream.Manifests

	request   catalog.Request
	platforms []image.Platform
	operator  *lock.Operator         // nil: none
	jumpHost  *matrix.ServiceRelease // nil: none
}

// sourceFlags say where upstream files and images are fetched from.
type sourceFlags struct {
	sourceMap   []string
	manifestDir string
}

func (f *sourceFlags) bind(cmd *cobra.Command) {
	flags.Group(cmd, flags.Sources, func(fl *pflag.FlagSet) {
		fl.StringArrayVar(&f.sourceMap, "source-map", nil, "fetch images from elsewhere (`FROM=TO`): HOST[/PATH]=HOST[/PATH] (repeatable)")
		fl.StringVar(&f.manifestDir, "manifest-dir", "", "take manifests from this `FOLDER`, by sha256, before asking their URL")
	})
}

// upstream returns how images are opened.
func (f *sourceFlags) upstream(client *remote.Client, r *registryFlags) (medium.Registry, error) {
	var sources image.SourceMap
	var problems []error
	for _, rule := range f.sourceMap {
		if err := sources.Add(rule); err != nil {
			problems = append(problems, flags.Bad("--source-map", rule, err, fault.HintOf(err)))
		}
	}
	if config, err := r.hosts(); err == nil { // else the client has reported it
		problems = append(problems, f.mirrors(&sources, r.hostsConfig, config.Mirrors))
	}
	open := func(ref image.Reference) medium.Source { return client.Repository(sources.Apply(ref)) }
	return open, fault.Join(problems...)
}

// mirrors adds those that the file of --hosts-config names, where no flag says where to.
func (f *sourceFlags) mirrors(sources *image.SourceMap, file string, of map[string]string) error {
	var problems []error
	for _, host := range slices.Sorted(maps.Keys(of)) {
		if slices.ContainsFunc(f.sourceMap, func(rule string) bool { return strings.HasPrefix(rule, host+"=") }) {
			continue
		}
		if err := sources.Add(host + "=" + of[host]); err != nil {
			problems = append(problems, flags.Bad("--hosts-config", file, fmt.Errorf("the mirror of %s: %w", host, fault.CauseOf(err)), "write it as HOST[/PATH]: mirror.corp:5000/k8s"))
		}
	}
	return fault.Join(problems...)
}

// manifests returns what fetches manifest files, with the settings of their hosts.
func (f *sourceFlags) manifests(client *remote.Client) (upstream.Manifests, error) {
	o := manifests.Options{Dir: f.manifestDir, Client: client}
	for _, m := range append(deploy.Manifests(), deploy.SIPManifests()...) {
		o.Own = append(o.Own, m.Data)
	}
	store := manifests.New(o)
	return store, store.Look()
}

// matrixFlags say which compatibility matrix is used.
type matrixFlags struct {
	matrix string
	matrixTrustFlags
}

func (f *matrixFlags) bind(cmd *cobra.Command) {
	flags.Group(cmd, flags.Matrix, func(fl *pflag.FlagSet) {
		fl.StringVar(&f.matrix, "matrix", "", "compatibility matrix in `FILE`, with its signature in FILE.sig (default: the one that is built in)")
		f.matrixTrustFlags.bind(fl)
	})
}

// openMatrix reads the matrix that is asked for, or the one that is built in.
func (f *matrixFlags) openMatrix(a *app) (matrixfile.File, error) {
	rules, err := f.matrixRules()
	if err != nil {
		return matrixfile.File{}, err
	}
	if f.matrix == "" {
		return matrixfile.Open(matrix.DefaultName, matrix.Default(), nil, rules, a.now())
	}
	data, err := userfile.Read("--matrix", f.matrix, bundle.MaxMatrixSize)
	if err != nil {
		return matrixfile.File{}, err
	}
	signature, err := userfile.Read("--matrix", f.matrix+".sig", maxSignatureFile)
	if err != nil && fault.ReasonOf(err) != fault.NotFound {
		return matrixfile.File{}, err
	}
	return matrixfile.Open(f.matrix, data, signature, rules, a.now())
}
