package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// copies is a bundle in a registry and in a folder, signed by k.key under cosign's
// tag and by c.key as a referrer, and what other tools copy it into.
type copies struct {
	*world
	from, to string // repositories of two registries
	sig      string // tag of the signature
	regs     []*registry.Registry
}

func newCopies(t *testing.T, to registry.Kind, pull ...string) *copies {
	t.Helper()
	w := newWorldOf(t, t.TempDir(), registry.Options{}, registry.Options{})
	c := &copies{world: w, from: w.mirror.Host + "/vdo/drivers", regs: []*registry.Registry{w.mirror, registry.Start(t, registry.Options{Kind: to})}}
	c.to = c.regs[1].Host + "/vdo/copy"
	w.must(t, "keygen", "-o", "k")
	w.must(t, "keygen", "-o", "c")
	w.must(t, append([]string{"pull", "@up", "-q", "--sign-key", "k.key", "--signature-format", "simple", "-o", "a.tar"}, pull...)...)
	pinned := strings.TrimSpace(w.must(t, "push", "a.tar", c.from+":1", "--plain-http", w.mirror.Host, "-q"))
	_, digest, _ := strings.Cut(pinned, "@sha256:")
	c.sig = "sha256-" + digest[:64] + ".sig"
	c.run(t, toolchain.Path(t, "cosign"), "sign", "--key", "c.key", "--tlog-upload=false", "--yes", "--allow-http-registry", "--new-bundle-format=true", c.from+"@sha256:"+digest[:64])
	return c
}

// run runs a tool of somebody else.
func (c *copies) run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = c.dir, os.Environ()
	for name, value := range c.env() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s: %s", filepath.Base(name), strings.Join(args, " "), out)
}

// signedBy verifies a copy, every byte of it, and tells by which of the two keys.
func (c *copies) signedBy(t *testing.T, at string) string {
	t.Helper()
	var by []string
	for _, key := range []string{"k", "c"} {
		cmd, _, stderr := c.command(t.Context(), "verify", at, "--key", key+".pub", "-q", "--plain-http", c.regs[0].Host, "--plain-http", c.regs[1].Host)
		if cmd.Run() == nil {
			by = append(by, key)
			continue
		}
		problems := strings.Count(stderr.String(), "error: ")
		require.Equal(t, 1, problems, stderr.String())
		require.Regexp(t, "it has no signature|none by a key that counts", stderr.String(), "the copy of %s is not whole", at)
	}
	return strings.Join(by, " ")
}

func TestCraneCopiesBundles(t *testing.T) {
	c := newCopies(t, registry.Distribution)
	crane := toolchain.Path(t, "crane")
	c.run(t, crane, "copy", "--insecure", c.from+":1", c.to+":1")
	require.Equal(t, "", c.signedBy(t, c.to+":1"), "a plain copy leaves signatures behind")
	c.run(t, crane, "copy", "--insecure", c.from+":"+c.sig, c.to+":"+c.sig)
	require.Equal(t, "k", c.signedBy(t, c.to+":1"))
	c.run(t, crane, "copy", "--insecure", "--all-tags", c.from, c.to+"/all")
	require.Equal(t, "k c", c.signedBy(t, c.to+"/all:1"), "the referrers' fallback tag goes along")

	c.run(t, crane, "pull", "--insecure", "--format", "oci", c.from+":1", "plain")
	require.Equal(t, "", c.signedBy(t, "oci:plain"))
	for _, tag := range []string{"1", c.sig} {
		c.run(t, crane, "pull", "--insecure", "--format", "oci", "--annotate-ref", c.from+":"+tag, "named")
	}
	require.Equal(t, "k", c.signedBy(t, "oci:named"))
	c.must(t, "push", "oci:named", c.to+"/back:1", "--plain-http", c.regs[1].Host, "-q", "--key", "k.pub")
	require.Equal(t, "k", c.signedBy(t, c.to+"/back:1"))
	c.run(t, crane, "push", "--insecure", "plain", c.to+"/pushed:1")
	require.Equal(t, "", c.signedBy(t, c.to+"/pushed:1"))
}

func TestRegctlCopiesBundles(t *testing.T) {
	c := newCopies(t, registry.Referrers)
	regctl := func(args ...string) {
		t.Helper()
		for _, reg := range c.regs {
			args = append([]string{"--host", "reg=" + reg.Host + ",tls=disabled"}, args...)
		}
		c.run(t, toolchain.Path(t, "regctl"), args...)
	}
	regctl("image", "copy", c.from+":1", c.to+":1")
	require.Equal(t, "", c.signedBy(t, c.to+":1"), "a plain copy leaves signatures behind")
	regctl("image", "copy", "--digest-tags", c.from+":1", c.to+"/tags:1")
	require.Contains(t, c.signedBy(t, c.to+"/tags:1"), "k")
	regctl("image", "copy", "--digest-tags", "--referrers", c.from+":1", c.to+"/both:1")
	require.Equal(t, "k c", c.signedBy(t, c.to+"/both:1"))

	regctl("image", "copy", "--digest-tags", "--referrers", c.from+":1", "ocidir://folder:1")
	require.Equal(t, "k c", c.signedBy(t, "oci:folder"))
	regctl("image", "copy", "--digest-tags", "--referrers", "ocidir://folder:1", c.to+"/back:1")
	require.Equal(t, "k c", c.signedBy(t, c.to+"/back:1"))

	// What vdo-bundle has written.
	c.must(t, "pull", "@up", "-q", "--sign-key", "k.key", "-o", "oci:ours")
	regctl("image", "copy", "--digest-tags", "--referrers", "ocidir://ours:bundle", c.to+"/ours:1")
	require.Equal(t, "k", c.signedBy(t, c.to+"/ours:1"))
	regctl("image", "import", "--name", "bundle", c.to+"/tar:1", "a.tar")
	require.Equal(t, "", c.signedBy(t, c.to+"/tar:1"))
	regctl("image", "import", "--name", c.sig, c.to+"/tar:"+c.sig, "a.tar")
	require.Equal(t, "k", c.signedBy(t, c.to+"/tar:1"))
}

// skopeo 1.9 keeps no index as it is that has an artifact type, and copies none within
// another. It says so rather than write something else, as long as it is told to
// preserve digests. It copies the images, and a bundle's signature.
func TestSkopeoCopiesImagesOfBundles(t *testing.T) {
	path := toolchain.Installed(t, "skopeo")
	c := newCopies(t, registry.Distribution, "--platform", "linux/amd64")
	from, to := "docker://"+c.from, "docker://"+c.to
	skopeo := func(args ...string) []string {
		return append([]string{"--insecure-policy", "copy", "--all", "--src-tls-verify=false", "--dest-tls-verify=false"}, args...)
	}
	if exec.CommandContext(t.Context(), path, skopeo("--preserve-digests", from+":1", to+":1")...).Run() == nil { // a later one
		require.Equal(t, "", c.signedBy(t, c.to+":1"), "a plain copy leaves signatures behind")
	}
	c.run(t, path, skopeo("--preserve-digests", from+":"+c.sig, to+":"+c.sig)...)
	if exec.CommandContext(t.Context(), path, skopeo(from+":1", to+":changed")...).Run() == nil {
		cmd, _, stderr := c.command(t.Context(), "verify", c.to+":changed", "--key", "k.pub", "--plain-http", c.regs[1].Host)
		require.Error(t, cmd.Run(), "another index is not the bundle")
		require.Contains(t, stderr.String(), `its artifact type "" is not application/vnd.vdo.bundle.v1`)
	}

	c.must(t, "pull", "@up", "-q", "--platform", "linux/amd64", "-o", "oci:ours")
	const image = "registry.test/csi/driver:v3.5.1"
	for _, source := range []string{"oci:ours:" + image, "oci-archive:a.tar:" + image} {
		c.run(t, path, skopeo("--preserve-digests", source, to+":driver")...)
		c.run(t, path, skopeo("--preserve-digests", source, "oci:driver:1")...)
	}
}

// The library that the oras program is made of: oras.ExtendedCopy is `oras cp -r`.
func TestOrasCopiesBundles(t *testing.T) {
	c := newCopies(t, registry.Referrers)
	repository := func(name string) *remote.Repository {
		r, err := remote.NewRepository(name)
		require.NoError(t, err)
		r.PlainHTTP = true
		return r
	}
	ctx, from := t.Context(), repository(c.from)
	_, err := oras.Copy(ctx, from, "1", repository(c.to), "1", oras.DefaultCopyOptions)
	require.NoError(t, err)
	require.Equal(t, "", c.signedBy(t, c.to+":1"), "a plain copy leaves signatures behind")
	_, err = oras.ExtendedCopy(ctx, from, "1", repository(c.to), "1", oras.DefaultExtendedCopyOptions)
	require.NoError(t, err)
	require.Equal(t, "c", c.signedBy(t, c.to+":1"), "referrers go along")
	_, err = oras.Copy(ctx, from, c.sig, repository(c.to), c.sig, oras.DefaultCopyOptions)
	require.NoError(t, err)
	require.Equal(t, "k c", c.signedBy(t, c.to+":1"))

	folder, err := oci.New(filepath.Join(c.dir, "folder"))
	require.NoError(t, err)
	_, err = oras.ExtendedCopy(ctx, from, "1", folder, "1", oras.DefaultExtendedCopyOptions)
	require.NoError(t, err)
	_, err = oras.Copy(ctx, from, c.sig, folder, c.sig, oras.DefaultCopyOptions)
	require.NoError(t, err)
	require.Equal(t, "k c", c.signedBy(t, "oci:folder"))

	ours, err := oci.NewFromTar(ctx, filepath.Join(c.dir, "a.tar"))
	require.NoError(t, err)
	for tag, as := range map[string]string{"bundle": "1", c.sig: c.sig} {
		_, err = oras.Copy(ctx, ours, tag, repository(c.to+"/tar"), as, oras.DefaultCopyOptions)
		require.NoError(t, err)
	}
	require.Equal(t, "k", c.signedBy(t, c.to+"/tar:1"))
}
