package cli_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// about attaches a manifest to a subject: under the tag with this end, or without one as
// a referrer.
func (f forge) about(subject ocispec.Descriptor, end string) ocispec.Descriptor {
	f.t.Helper()
	return f.attach(subject, end, f.put("application/x", []byte("about "+subject.Digest.String()+end)))
}

// What is attached to the manifest of a platform, and to what is attached, goes from
// medium to medium with the rest, also through a registry and with a served delta.
func TestWhatIsAttachedAnywhereTravels(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.key(t, "k")
	w.must(t, "lock", "@up", "-q", "--release", "csi@3.5.1", "-o", "old.yaml")
	w.must(t, "pull", "@up", "-q", "--lock", "old.yaml", "-o", "old.tar")
	login := must(remote.ConfigCredentials("login", w.mirror.DockerConfig()))(t)
	client, err := remote.NewClient(remote.Options{CA: w.mirror.CA(), PlainHTTP: []string{w.upstream.Host}, Credentials: login})
	require.NoError(t, err)

	for name, pull := range map[string][]string{"whole": nil, "delta": {"--base", "old.tar"}} {
		t.Run(name, func(t *testing.T) {
			w.must(t, append([]string{"pull", "@up", "-q", "--sign-key", "k.key", "--provenance", "-o", "oci:" + name}, pull...)...)
			f := forge{t, filepath.Join(w.dir, name)}
			var root, driver ocispec.Index
			require.NoError(t, json.Unmarshal(f.read(f.named("bundle")), &root))
			at := slices.IndexFunc(root.Manifests, func(d ocispec.Descriptor) bool {
				return strings.HasSuffix(d.Annotations["vdo.vmware.com/reference"], "csi/driver:v3.5.1")
			})
			require.NoError(t, json.Unmarshal(f.read(root.Manifests[at]), &driver))
			platform := driver.Manifests[0]
			signature, referrer := f.about(platform, ".sig"), f.about(platform, "")
			attested := f.about(referrer, ".att")
			referrers := map[string]int{
				f.named("bundle").Digest.String(): 4, // signature and provenance, each in both forms
				platform.Digest.String():          2, referrer.Digest.String(): 1,
				signature.Digest.String(): 1, attested.Digest.String(): 1,
			}
			f.about(signature, "")
			f.about(attested, ".sig")

			requireAttached := func(reference string) {
				t.Helper()
				ref := must(image.ParseReference(reference))(t)
				got := map[string]int{}
				for subject := range referrers {
					digest := must(image.ParseDigest(subject))(t)
					list, err := client.Repository(ref).Attachments(t.Context(), digest)
					if err == nil {
						got[subject] = len(list)
					}
				}
				require.Equal(t, referrers, got, reference)
			}
			src := "oci:" + name
			if pull != nil {
				s := w.serve(t, src, "--base", "old.tar", "--key", "k.pub", "--as", "site/boot:7")
				defer s.end(t)
				require.Equal(t, s.Address+"/site/boot@"+s.Root, s.Reference)
				require.False(t, s.TLS || s.Login)
				require.Contains(t, s.Repositories, "site/boot/registry.test/csi/driver")
				w.must(t, "verify", s.Address+"/site/boot:7", "--key", "k.pub", "--plain-http", s.Address)
				require.NotContains(t, w.must(t, "inspect", s.Reference, "--plain-http", s.Address), "delta")
				src = s.Reference
			}
			plain := []string{"--plain-http", w.upstream.Host, "-q", "--ca-file", "ca.crt"}
			if host, _, ok := strings.Cut(src, "/site"); ok {
				plain = append(plain, "--plain-http", host)
			}
			for n, to := range []string{w.upstream.Host, w.mirror.Host} { // from a registry to the next
				to = fmt.Sprintf("%s/vdo/%s:%d", to, name, n)
				w.must(t, append([]string{"push", src, to, "--key", "k.pub", "--layout", "paths"}, plain...)...)
				requireAttached(to)
				src = to
				beside := strings.Split(to, ":")
				ref := must(image.ParseReference(strings.Join(beside[:2], ":") + "/registry.test/csi/driver:v3.5.1"))(t)
				digest := must(image.ParseDigest(attested.Digest.String()))(t)
				list := must(client.Repository(ref).Attachments(t.Context(), digest))(t)
				require.Len(t, list, 1)
			}
		})
	}
}
