package model

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	sites "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

// The bundles that the connected host made, in the order of their serials: tags of the
// repository, which the tag "site" moves between.
const (
	bundleFirst     = "first"     // cpi@1.33.1, snapshot-controller@8.2.0, csi@3.5.1
	bundleRebuilt   = "rebuilt"   // the same releases under another root
	bundleNewer     = "newer"     // csi@3.7.3 beside them
	bundleUnsigned  = "unsigned"  // by nobody
	bundleStrangers = "strangers" // by somebody else's key
)

const repository = "vdo/drivers"

// mirror is the site's registry with all bundles in it.
type mirror struct {
	*registry.Registry
	keys map[string]string // public, in PEM: release, stranger
}

var serial = regexp.MustCompile(`(?m)^serial: \d+$`)

// deliver has vdo-bundle lock, pull, sign and push every bundle.
func deliver(ctx context.Context, dir string) (_ *mirror, err error) {
	m := &mirror{keys: map[string]string{}}
	if m.Registry, err = registry.New(registry.Options{TLS: true, Auth: registry.Basic, Password: mirrorPassword}); err != nil {
		return nil, err
	}
	releases := []string{"cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.5.1"}
	up, err := sites.NewUpstream(ctx, sites.UpstreamOptions{Dir: dir, Releases: append(releases, "csi@3.7.3")})
	if err != nil {
		return nil, err
	}
	defer up.Close()
	d := &connected{dir: dir, up: up, mirror: m.Registry}
	if err := d.setUp(ctx); err != nil {
		return nil, err
	}
	for i, b := range []struct {
		tag, key string
		releases []string
	}{
		{bundleFirst, "release", releases},
		{bundleRebuilt, "release", releases},
		{bundleNewer, "release", append(releases, "csi@3.7.3")},
		{bundleUnsigned, "", append(releases, "csi@3.7.3")},
		{bundleStrangers, "stranger", append(releases, "csi@3.7.3")},
	} {
		if err := d.make(ctx, 101+i, b.tag, b.key, b.releases); err != nil {
			return nil, fmt.Errorf("bundle %s: %w", b.tag, err)
		}
	}
	for _, name := range []string{"release", "stranger"} {
		pem, err := os.ReadFile(filepath.Join(dir, name+".pub"))
		if err != nil {
			return nil, err
		}
		m.keys[name] = string(pem)
	}
	return m, nil
}

// connected is the host on the connected side.
type connected struct {
	dir    string
	up     *sites.Upstream
	mirror *registry.Registry
	shell  *shell.Shell
}

func (d *connected) setUp(ctx context.Context) error {
	if err := toolchain.Programs(ctx, filepath.Join(d.dir, "bin"), "./bundler/cmd/vdo-bundle"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.dir, "config.json"), d.mirror.DockerConfig(), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.dir, "ca.crt"), d.mirror.CA(), 0o600); err != nil {
		return err
	}
	d.shell = &shell.Shell{Dir: d.dir, Path: []string{filepath.Join(d.dir, "bin")},
		Env: []string{"HOME=" + d.dir, "DOCKER_CONFIG=" + d.dir, "COSIGN_PASSWORD=secret"}}
	for _, name := range []string{"release", "stranger"} {
		if err := d.run(ctx, "keygen -o "+name); err != nil {
			return err
		}
	}
	return nil
}

func (d *connected) run(ctx context.Context, words string, more ...string) error {
	_, err := d.shell.Run(ctx, "vdo-bundle", append(strings.Fields(words), more...)...)
	return err
}

// make makes one bundle, signs it where there is a key, and pushes it under its tag.
// Each has an operator's image of its own, so that no two have the same root.
func (d *connected) make(ctx context.Context, n int, tag, key string, releases []string) error {
	matrix, err := os.ReadFile(d.up.MatrixFile)
	if err != nil {
		return err
	}
	matrix = serial.ReplaceAll(matrix, fmt.Appendf(nil, "serial: %d", n))
	if err := os.WriteFile(d.up.MatrixFile, matrix, 0o600); err != nil {
		return err
	}
	operator := fmt.Sprintf("%s/vdo/vdo-operator:v1.0.%d", d.up.Registry.Host, n)
	built, err := images.Build(images.Spec{Seed: uint64(n)}) //nolint:gosec // small and positive
	if err != nil {
		return err
	}
	if _, err := built.Push(ctx, d.up.Registry, operator); err != nil {
		return err
	}
	args := d.up.Flags()
	for _, r := range releases {
		args = append(args, "--release", r)
	}
	if err := d.run(ctx, "lock -o "+tag+".yaml --drivers cpi,csi,snapshot-controller --operator "+operator, args...); err != nil {
		return err
	}
	if err := d.run(ctx, "pull --lock "+tag+".yaml -o "+tag+".tar", d.up.Flags()...); err != nil {
		return err
	}
	if key != "" {
		if err := d.run(ctx, "sign "+tag+".tar --key "+key+".key"); err != nil {
			return err
		}
	}
	return d.run(ctx, "push "+tag+".tar "+d.mirror.Host+"/"+repository+":"+tag+" --ca-file ca.crt")
}
