package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/archive"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/manifests"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/matrixfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Bounds of files that the user names, in bytes.
const (
	maxKeyFile       = 64 << 10
	maxTrustFile     = 1 << 20 // keys, certificates and trusted roots that a policy names
	maxPolicyFile    = 1 << 20
	maxSignatureFile = 1 << 20
	maxCAFile        = 4 << 20
	maxPassword      = 4 << 10
)

// client returns what speaks to registries, or all that is wrong with the flags.
func (f *flags) client() (*registry.Client, error) {
	o := registry.Options{
		CAFile: f.caFile, PlainHTTP: f.plainHTTP, ClientCert: f.clientCert, ClientKey: f.clientKey,
		Concurrency: f.concurrency, Attempts: f.retries + 1, Stall: f.timeout, Ranges: f.ranges,
		UserAgent: "vdo-bundle/" + version().Version, CheckAll: f.checkAll, OmitRefused: f.omitRefused,
	}
	var problems []error
	bad := func(flag, value string, err error, hint string) {
		if err != nil {
			problems = append(problems, badFlag(flag, value, err, hint))
		}
	}
	if f.concurrency < 1 || f.concurrency > 64 {
		bad("--concurrency", fmt.Sprint(f.concurrency), errors.New("it is not between 1 and 64"), "6 is a good value for most links")
	}
	if f.ranges < 1 || f.ranges > 8 {
		bad("--ranges", fmt.Sprint(f.ranges), errors.New("it is not between 1 and 8"), "1 is right unless the registry holds each connection back")
	}
	problems = append(problems, f.checkPatience())
	var err error
	if f.rateLimit != "" {
		if o.Rate, err = registry.ParseSize(f.rateLimit); err == nil && o.Rate < minRate {
			err = fmt.Errorf("it is less than %d bytes a second", minRate)
		}
		bad("--rate-limit", f.rateLimit, err, "write 10MB or 500KiB, for each second")
	}
	if f.chunkSize != "" {
		o.ChunkSize, err = registry.ParseChunkSize(f.chunkSize)
		bad("--chunk-size", f.chunkSize, err, "write 50MB or 16MiB")
	}
	config, err := f.registryConfig()
	if err := fault.Join(append(problems, err)...); err != nil {
		return nil, err
	}
	o.Hosts = config.Hosts
	return registry.NewClient(o)
}

// checkPatience says what is wrong with --retries and --timeout.
func (f *flags) checkPatience() error {
	var retries, timeout error
	if f.retries < 0 || f.retries > 100 {
		retries = badFlag("--retries", fmt.Sprint(f.retries), errors.New("it is not between 0 and 100"), "5 is a good value for most links")
	}
	if f.timeout < time.Second || f.timeout > time.Hour {
		timeout = badFlag("--timeout", f.timeout.String(), errors.New("it is not between 1s and 1h"), "1m is a good value for most links")
	}
	return fault.Join(retries, timeout)
}

const minRate = 1000 // bytes a second; less would never end

// registryConfig reads the settings of single hosts; none where there is no file.
func (f *flags) registryConfig() (*registry.Config, error) {
	if f.registries == "" {
		return &registry.Config{}, nil
	}
	data, err := userfile.Read("--registry-config", f.registries, registry.MaxConfigSize)
	if err != nil {
		return nil, err
	}
	return registry.ParseConfig(f.registries, data)
}

// upstream returns how images are opened.
func (f *flags) upstream(client *registry.Client) (medium.Registry, error) {
	var sources image.SourceMap
	var problems []error
	for _, rule := range f.sourceMap {
		if err := sources.Add(rule); err != nil {
			problems = append(problems, badFlag("--source-map", rule, err, fault.HintOf(err)))
		}
	}
	if config, err := f.registryConfig(); err == nil { // else the client has said so
		problems = append(problems, f.mirrors(&sources, config))
	}
	open := func(ref image.Reference) medium.Source { return client.Repository(sources.Apply(ref)) }
	return open, fault.Join(problems...)
}

// mirrors adds those of the settings of hosts, where no flag says where to.
func (f *flags) mirrors(sources *image.SourceMap, config *registry.Config) error {
	var problems []error
	for _, host := range slices.Sorted(maps.Keys(config.Mirrors)) {
		if slices.ContainsFunc(f.sourceMap, func(rule string) bool { return strings.HasPrefix(rule, host+"=") }) {
			continue
		}
		if err := sources.Add(host + "=" + config.Mirrors[host]); err != nil {
			problems = append(problems, badFlag("--registry-config", f.registries, fmt.Errorf("the mirror of %s: %w", host, unwrapped(err)), "write it as HOST[/PATH]: mirror.corp:5000/k8s"))
		}
	}
	return fault.Join(problems...)
}

// direct opens references as they are.
func direct(client *registry.Client) medium.Registry {
	return func(ref image.Reference) medium.Source { return client.Repository(ref) }
}

// manifests returns what fetches manifest files, with the settings of their hosts.
func (f *flags) manifests(client *registry.Client) upstream.Manifests {
	web := client.Web()
	o := manifests.Options{Dir: f.manifestDir, Transport: web, PlainHTTP: web.PlainHTTP, Attempts: f.retries + 1}
	for _, m := range deploy.Manifests() {
		o.Own = append(o.Own, m.Data)
	}
	return manifests.New(o)
}

// authorities are those of --ca-file and the system's; nil for the system's alone.
func (f *flags) authorities() (*x509.CertPool, error) {
	if f.caFile == "" {
		return nil, nil
	}
	pem, err := userfile.Read("--ca-file", f.caFile, maxCAFile)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read", Subject: f.caFile, Err: errors.New("there is no PEM certificate in it"),
			Hint: "give the certificates of the authority in PEM with --ca-file",
		}
	}
	return pool, nil
}

// openMatrix reads the matrix that is asked for, or the one that is built in.
func (a *app) openMatrix() (matrixfile.File, error) {
	rules, err := a.flags.matrixRules()
	if err != nil {
		return matrixfile.File{}, err
	}
	if a.flags.matrix == "" {
		return matrixfile.Open(matrix.DefaultName, matrix.Default(), nil, rules, a.now())
	}
	data, err := userfile.Read("--matrix", a.flags.matrix, bundle.MaxMatrixSize)
	if err != nil {
		return matrixfile.File{}, err
	}
	signature, err := userfile.Read("--matrix", a.flags.matrix+".sig", maxSignatureFile)
	if err != nil && fault.ReasonOf(err) != fault.NotFound {
		return matrixfile.File{}, err
	}
	return matrixfile.Open(a.flags.matrix, data, signature, rules, a.now())
}

func (f *flags) matrixRules() (matrixfile.Rules, error) {
	rules := matrixfile.Rules{AllowExpired: f.allowExpired}
	switch {
	case f.matrixPolicy != "" && f.matrixKey != "":
		return rules, badFlag("--matrix-policy", f.matrixPolicy, errors.New("--matrix-key is given as well"), "put the key into the policy, or give the key alone")
	case f.matrixPolicy != "":
		var err error
		rules.Policy, err = parsePolicy("--matrix-policy", f.matrixPolicy)
		return rules, err
	case f.matrixKey == "":
		return rules, nil
	}
	key, err := publicKey("--matrix-key", f.matrixKey, "")
	if err != nil {
		return rules, err
	}
	rules.Policy, err = trust.NewPolicy(1, key)
	return rules, err
}

// trustPolicy returns the policy of --key or --policy; nil where neither is given.
func (f *flags) trustPolicy() (*trust.Policy, error) {
	switch {
	case f.policy != "" && len(f.keys) > 0:
		return nil, badFlag("--policy", f.policy, errors.New("--key is given as well"), "put the keys into the policy, or give keys alone")
	case f.policy != "":
		return parsePolicy("--policy", f.policy)
	case len(f.keys) == 0:
		return nil, nil
	}
	keys := make([]trust.Key, len(f.keys))
	var problems []error
	for i, name := range f.keys {
		var err error
		keys[i], err = publicKey("--key", name, fmt.Sprintf("-%d", i+1))
		problems = append(problems, err)
	}
	if err := fault.Join(problems...); err != nil {
		return nil, err
	}
	return trust.NewPolicy(1, keys...)
}

// publicKey reads a key and names it after its file. Of several, the suffix keeps
// equal names apart; the first has none.
func publicKey(flag, name, suffix string) (trust.Key, error) {
	pem, err := userfile.Read(flag, name, maxKeyFile)
	if err != nil {
		return trust.Key{}, err
	}
	if suffix == "-1" {
		suffix = ""
	}
	key, err := trust.NewKey(keyID(name)+suffix, pem, trust.KeyOptions{})
	if err != nil {
		return key, &fault.Error{
			Reason: fault.InvalidInput, Op: "read public key", Subject: name, Err: unwrapped(err), Hint: fault.HintOf(err),
		}
	}
	return key, nil
}

// unwrapped drops the outer operation and subject, where a better subject is known.
func unwrapped(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Err != nil {
		return f.Err
	}
	return err
}

func keyID(name string) string {
	id := strings.Map(func(r rune) rune {
		if r < 128 && (r == '.' || r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return '_'
	}, filepath.Base(name))
	return id[:min(len(id), 48)]
}

// openSource opens a bundle for reading.
func (a *app) openSource(ctx context.Context, p place, client *registry.Client) (medium.Source, error) {
	switch p.medium {
	case inFile:
		return archive.OpenFile(p.path)
	case inFolder:
		return archive.OpenDir(p.path)
	case inStream:
		return a.openInput(ctx)
	}
	return client.Repository(p.reference), nil
}

// openInput opens the archive that comes on standard input.
func (a *app) openInput(ctx context.Context) (medium.Source, error) {
	if a.in == nil || isatty.IsTerminal(a.in.Fd()) {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read", Subject: "standard input", Err: errors.New("it is a terminal"),
			Hint: "lead an archive into it: vdo-bundle … - < drivers.tar",
		}
	}
	return archive.OpenStream(ctx, "standard input", a.in)
}

// openTarget opens a place for writing.
func (a *app) openTarget(p place, client *registry.Client) (medium.Target, error) {
	o := archive.Options{Replace: a.flags.replace, Restart: a.flags.restart, VolumeSize: int64(a.flags.volumeSize), Recovery: a.flags.parity}
	switch p.medium {
	case inFile:
		return archive.CreateFile(p.path, o)
	case inFolder:
		return archive.CreateDir(p.path, o)
	case inStream:
		if f, ok := a.out.(interface{ Fd() uintptr }); ok && isatty.IsTerminal(f.Fd()) {
			return nil, &fault.Error{
				Reason: fault.InvalidInput, Op: "write", Subject: "standard output", Err: errors.New("it is a terminal"),
				Hint: "lead it into a file or a program: vdo-bundle pull -o - > drivers.tar",
			}
		}
		return archive.NewStreamWriter(a.out), nil
	}
	return client.Repository(p.reference), nil
}
