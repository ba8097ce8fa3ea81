package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
	w.key(t, "k")
	w.must(t, "keygen", "-o", "c")
	w.must(t, append([]string{"pull", "@up", "-q", "--sign-key", "k.key", "--signature-format", "simple", "-o", "a.tar"}, pull...)...)
	pinned := strings.TrimSpace(w.must(t, "push", "a.tar", c.from+":1", "--plain-http", w.mirror.Host, "-q"))
	_, digest, _ := strings.Cut(pinned, "@sha256:")
	c.sig = "sha256-" + digest[:64] + ".sig"
	c.run(t, toolchain.Path(t, "cosign"), "sign", "--key", "c.key", "--tlog-upload=false", "--yes", "--allow-http-registry", "--new-bundle-format=true", c.from+"@sha256:"+digest[:64])
	return c
}

// run runs a tool of someone else.
func (c *copies) run(t *testing.T, name string, args ...string) {
	t.Helper()
	tool := *c.world
	tool.program = name
	tool.must(t, args...)
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
		require.Regexp(t, "it has no signature|no trusted signature", stderr.String(), "the copy of %s is not whole", at)
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
}
