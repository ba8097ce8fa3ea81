package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/manifests"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/matrixfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/lock"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func newLockCommand(a *app) *cobra.Command {
	o := &lockFlags{common: common{app: a}}
	cmd := &cobra.Command{
		Use:   "lock [-o lock.yaml]",
		Short: "Choose releases and fix every manifest and image by digest",
		Long: `lock chooses driver releases from the compatibility matrix, and reads their upstream
manifests. It resolves every image in them to a digest, and writes a lock file. Two pulls of
one lock give the same bundle, byte for byte.

Without a selection it takes the newest supported drivers for each of the last three
Kubernetes versions that all of them cover.`,
		Example: `  vdo-bundle lock -o lock.yaml
  vdo-bundle lock --k8s 1.32-1.34 --vsphere 8.0.3 --platform linux/amd64 -o lock.yaml
  vdo-bundle lock --release csi@3.5.1 --release cpi@1.33.1 -o lock.yaml
  vdo-bundle lock --operator registry.example/vdo-operator:v1.2.3 --services sip -o lock.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.bindOutput(cmd, "`FILE` to write the lock to, - for standard output")
	return with(cmd, o.bindLock, o.registryFlags.bind, o.bindFormat, o.bindProgress)
}

func (f *lockFlags) run(ctx context.Context) error {
	w, err := f.world()
	if err != nil {
		return err
	}
	locked, _, err := f.lock(ctx, w)
	if err != nil {
		f.sayUnused(ctx)
		return err
	}
	data, err := locked.YAML()
	if f.json() {
		data, err = locked.JSON()
	}
	if err != nil {
		return err
	}
	return f.deliver(f.dest, data, fmt.Sprintf(": %s, %s",
		command.Plural(len(locked.Releases), "release", "releases"),
		command.Plural(len(locked.Images), "image", "images")))
}

// lockFlags are the flags of `lock`, shared with `pull` and, in part, with `outdated`.
type lockFlags struct {
	common
	selectionFlags
	matrixFlags
	sourceFlags
}

func (f *lockFlags) bindLock(cmd *cobra.Command) {
	with(cmd, f.selectionFlags.bind, f.matrixFlags.bind, f.sourceFlags.bind)
}

// world opens all inputs of lock and pull, and reports all wrong flags.
func (f *lockFlags) world() (w world, err error) {
	var errs [7]error
	w.Matrix, errs[0] = f.openMatrix(&f.common)
	w.client, errs[1] = f.client(&f.common)
	w.Registry, errs[2] = f.upstream(w.client, &f.registryFlags)
	if errs[1] == nil {
		w.Manifests, errs[3] = f.manifests(w.client)
	}
	w.Request, w.Platforms, errs[4] = f.request()
	w.Request.File = f.matrix
	if w.Operator, errs[5] = own("--operator", bundle.Operator, f.operator); errs[5] == nil {
		w.JumpHost, errs[6] = f.jumpHostInput()
	}
	return w, fault.Distinct(fault.Join(errs[:]...))
}

func (f *lockFlags) lock(ctx context.Context, w world) (*bundle.Lock, catalog.Files, error) {
	locked, files, err := lock.Make(ctx, w.Input, f.options())
	if err != nil {
		return nil, nil, err
	}
	for _, i := range locked.Images {
		if i.Why() != "" {
			f.say("%s", movedLine(i.Reference, i.Source.String(), i.Why()))
		}
	}
	own, err := matrix.ParseVersion(version().Version)
	if o := w.Operator; o != nil && err == nil && !own.IsPrerelease() && !own.Equal(o.Version) {
		f.say("the install manifests are those of vdo-bundle %s, the operator is %s: lock with vdo-bundle %[2]s", own, o.Version)
	}
	return locked, files, nil
}

// selectionFlags select the content of a bundle.
type selectionFlags struct {
	drivers, kubernetes, vSphere, releases, services, platforms []string
	operator, jumpHost                                          string
}

func (f *selectionFlags) bind(cmd *cobra.Command) {
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		fl.StringSliceVar(&f.drivers, "drivers", nil, "`DRIVERS` to take: cpi, csi, cni, snapshot-controller (default cpi,csi,snapshot-controller); none for services alone")
		fl.StringSliceVar(&f.kubernetes, "k8s", nil, "Kubernetes `VERSIONS` to cover: 1.33, 1.32-1.34 or a list (default the last three that all drivers cover)")
		fl.StringSliceVar(&f.vSphere, "vsphere", nil, "vSphere `VERSIONS` that every driver must support: 8.0.3, 7.0U3 or a list")
		fl.StringArrayVar(&f.releases, "release", nil, "take this release: `DRIVER@VERSION` such as csi@3.5.1, or of a service haproxy@3.2.23 in place of the newest (repeatable)")
		fl.StringVar(&f.operator, "operator", "", "take VDO's own operator as well: its `IMAGE`, with a version as tag; its install manifests come from this program")
		fl.StringSliceVar(&f.services, "services", nil, "`SERVICES` to take besides drivers: sip, which is the load balancer (haproxy), login (dex) and jump host of tenant clusters")
		fl.StringVar(&f.jumpHost, "jump-host", "", "`IMAGE` of VDO's own jump host, with a version as tag (default vdo-jumphost beside the image of --operator)")
		fl.StringSliceVar(&f.platforms, "platform", []string{"all"}, "`PLATFORMS` to take: linux/amd64, a list such as linux/amd64,linux/arm64, or all")
	})
}

// selects returns the first selection flag that was given; it contradicts --lock.
func selects(cmd *cobra.Command) (flag string, ok bool) {
	for _, name := range []string{"drivers", "k8s", "vsphere", "release", "operator", "services", "jump-host", "platform"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			return "--" + name, true
		}
	}
	return "", false
}

// request reads the selection flags, and reports all that are wrong.
func (f *selectionFlags) request() (catalog.Request, []image.Platform, error) {
	var p flagProblems
	req := catalog.Request{NoDrivers: slices.Equal(f.drivers, []string{"none"})}
	if !req.NoDrivers {
		req.Drivers = each(&p, "--drivers", f.drivers, matrix.ParseDriver, "take some of cpi, csi, cni, snapshot-controller")
	}
	minors := each(&p, "--k8s", f.kubernetes, matrix.ParseMinors, k8sForm)
	req.Kubernetes = slices.Concat(minors...)
	req.VSphere = each(&p, "--vsphere", f.vSphere, matrix.ParseVSphere, "write 8.0.3 or 8.0U3")
	req.Releases = each(&p, "--release", f.releases, parseRelease, "write DRIVER@VERSION such as csi@3.5.1")
	sets := each(&p, "--services", f.services, parseServices, "take sip, or leave the flag out")
	req.Services = slices.Concat(sets...)
	platforms, err := image.ParsePlatforms(f.platforms)
	if err != nil {
		p = append(p, flags.Bad("--platform", strings.Join(f.platforms, ","),
			errors.New("not a platform, or a list of platforms"), fault.HintOf(err)))
	}
	return req, platforms, fault.Join(p...)
}

type flagProblems []error

// each parses the values of a repeatable flag.
func each[T any](p *flagProblems, flag string, values []string, parse func(string) (T, error), hint string) []T {
	var out []T
	for _, s := range values {
		v, err := parse(s)
		if err != nil {
			*p = append(*p, flags.Bad(flag, s, err, hint))
		}
		out = append(out, v)
	}
	return out
}

// servicesSIP is the set of services of tenant clusters.
const servicesSIP = "sip"

func parseServices(s string) ([]matrix.Driver, error) {
	if s != servicesSIP {
		return nil, errors.New("no such set of services")
	}
	return matrix.Services(), nil
}

func parseRelease(s string) (matrix.ReleaseID, error) {
	name, _, _ := strings.Cut(s, "@")
	if _, err := matrix.ParseService(name); err == nil {
		return matrix.ParseServiceID(s)
	}
	return matrix.ParseReleaseID(s)
}

// own reads the image of a program of this project; nil if it is not given.
func own(flag string, program matrix.Driver, reference string) (*matrix.ServiceRelease, error) {
	if reference == "" {
		return nil, nil
	}
	release, err := lock.Own(program, reference)
	if err != nil {
		return nil, flags.Bad(flag, reference, err, "") // it has a hint
	}
	return release, nil
}

// jumpHostInput reads --jump-host, or derives it from --operator. It returns nil without requested services.
func (f *selectionFlags) jumpHostInput() (*matrix.ServiceRelease, error) {
	if !slices.Contains(f.services, servicesSIP) {
		return nil, nil
	}
	reference := cmp.Or(f.jumpHost, lock.JumpHostBeside(f.operator))
	if reference == "" {
		return nil, flags.Bad("--services", servicesSIP, errors.New("it is not said where the image of the jump host is"),
			"add --jump-host registry.example/vdo-jumphost:v1.2.3, or --operator with the image vdo-operator beside it")
	}
	return own("--jump-host", bundle.JumpHost, reference)
}

// world is the input of lock and pull.
type world struct {
	lock.Input
	client *remote.Client
}

// sourceFlags say where to fetch upstream files and images.
type sourceFlags struct {
	sourceMap, manifestDirs []string
	asked                   sync.Map // repositories of images, before the map
}

func (f *sourceFlags) bind(cmd *cobra.Command) {
	flags.Group(cmd, flags.Sources, func(fl *pflag.FlagSet) {
		fl.StringArrayVar(&f.sourceMap, "source-map", nil, "fetch images from elsewhere (`FROM=TO`): HOST[/PATH]=HOST[/PATH] (repeatable)")
		fl.StringArrayVar(&f.manifestDirs, "manifest-dir", nil, "take manifests from this `FOLDER`, by sha256, before asking their URL (repeatable)")
	})
}

// upstream returns a function that opens upstream images, by a client of the flags.
func (f *sourceFlags) upstream(client *remote.Client, r *registryFlags) (medium.Registry, error) {
	var sources image.SourceMap
	var problems []error
	for _, rule := range f.sourceMap {
		if err := sources.Add(rule); err != nil {
			problems = append(problems, flags.Bad("--source-map", rule, err, fault.HintOf(err)))
		}
	}
	problems = append(problems, f.mirrors(&sources, r.hostsConfig, r.remote.Hosts))
	open := func(ref image.Reference) medium.Source {
		f.asked.Store(ref.Repository()+"/", true)
		return client.Repository(sources.Apply(ref))
	}
	return open, fault.Join(problems...)
}

// sayUnused tells after a failure which rules of --source-map no image has matched: they may be misspelt.
func (f *lockFlags) sayUnused(ctx context.Context) {
	for _, rule := range f.sourceMap {
		from, _, _ := strings.Cut(rule, "=")
		unused := false
		f.asked.Range(func(repository, _ any) bool {
			unused = !strings.HasPrefix(fmt.Sprint(repository), from+"/")
			return unused
		})
		if unused && ctx.Err() == nil {
			f.say("--source-map %s: no image comes from %s", rule, from)
		}
	}
}

// mirrors adds the mirrors of the --hosts-config file, unless a flag names the host.
func (f *sourceFlags) mirrors(sources *image.SourceMap, file string, hosts map[string]remote.HostOptions) error {
	var problems []error
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		isOf := func(rule string) bool { return strings.HasPrefix(rule, host+"=") }
		if hosts[host].Mirror == "" || slices.ContainsFunc(f.sourceMap, isOf) {
			continue
		}
		if err := sources.Add(host + "=" + hosts[host].Mirror); err != nil {
			problems = append(problems, flags.Bad("--hosts-config", file, fmt.Errorf("the mirror of %s: %w", host, fault.CauseOf(err)), "write it as HOST[/PATH]: mirror.corp:5000/k8s"))
		}
	}
	return fault.Join(problems...)
}

// manifests returns the fetcher of manifest files, with the settings of their hosts.
func (f *sourceFlags) manifests(client *remote.Client) (upstream.Manifests, error) {
	o := manifests.Options{Dirs: f.manifestDirs, Client: client}
	for _, m := range append(deploy.Manifests(), deploy.SIPManifests()...) {
		o.Own = append(o.Own, m.Data)
	}
	return manifests.New(o)
}

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

// openMatrix reads the requested matrix, or the built-in one.
func (f *matrixFlags) openMatrix(c *common) (matrixfile.File, error) {
	rules, err := f.matrixRules()
	if err != nil {
		return matrixfile.File{}, err
	}
	name, data, signature := matrix.DefaultName, matrix.Default(), []byte(nil)
	if f.matrix != "" {
		name = f.matrix
		if data, err = userfile.Read("--matrix", name, bundle.MaxMatrixSize); err != nil {
			return matrixfile.File{}, err
		}
		signature, err = userfile.Read("--matrix", name+".sig", bundle.MaxSignature)
		if err != nil && fault.ReasonOf(err) != fault.NotFound {
			return matrixfile.File{}, err
		}
	}
	m, err := matrixfile.Open(name, data, signature, rules, time.Now())
	if err == nil {
		c.warnExpired(name, m.Document)
	}
	return m, err
}
