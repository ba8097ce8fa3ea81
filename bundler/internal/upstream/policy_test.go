package upstream_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
)

const upstreamHeader = "apiVersion: vdo.vmware.com/upstream/v1\nkind: UpstreamPolicy\n"

func noPolicies(string) (*trust.Policy, error) { return nil, errors.New("no such policy") }

func TestBadUpstreamPoliciesAreExplained(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "it is empty",
		"a: [":                   "line 1",
		"kind: UpstreamPolicy\n": "apiVersion: is missing",
		upstreamHeader:           "it has no rules",
		upstreamHeader + "rules:\n- {images: '', unsigned: true}\n":                                    `"" is not HOST`,
		upstreamHeader + "rules:\n- {images: 'a.b/*', unsigned: true}\n":                               "is not HOST or HOST/PATH",
		upstreamHeader + "rules:\n- {images: 'a.b/c:1', unsigned: true}\n":                             "is not HOST or HOST/PATH",
		upstreamHeader + "rules:\n- {images: a.b, unsigned: true, policy: x}\n":                        "exactly one of",
		upstreamHeader + "rules:\n- {images: a.b, unsigned: false}\n":                                  "exactly one of",
		upstreamHeader + "rules:\n- {images: a.b, unsigned: true}\n- {images: a.b/, unsigned: true}\n": "rules[1]: there are two rules for a.b",
		upstreamHeader + "rules:\n- {images: a.b, policy: x}\n":                                        "no such policy",
		upstreamHeader + "rules:\n- {images: a.b, sinigned: true}\n":                                   "sinigned",
		upstreamHeader + "rules:\n" + strings.Repeat("- {images: a, unsigned: true}\n", 300):           "more than 256",
		upstreamHeader + "#" + strings.Repeat("x", 1<<20):                                              "longer than",
	} {
		_, err := upstream.ParsePolicy("up.yaml", []byte(text), noPolicies)
		require.ErrorContains(t, err, want)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), "%v", err)
		require.NotEmpty(t, fault.HintOf(err))
	}
	for _, images := range []string{"docker.io", "docker.io/antrea", "docker.io/library", "docker.io/library/haproxy", "a.b"} {
		_, err := upstream.ParsePolicy("up.yaml", []byte(upstreamHeader+"rules:\n- {images: "+images+", unsigned: true}\n"), noPolicies)
		require.NoError(t, err, images)
	}
}

func FuzzParseUpstreamPolicy(f *testing.F) {
	f.Add([]byte(upstreamHeader + "rules:\n- {images: a.b, policy: x}\n- {images: a.b/c, unsigned: true}\n"))
	f.Add([]byte("rules: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := upstream.ParsePolicy("fuzz", data, func(string) (*trust.Policy, error) { return nil, nil })
		if err != nil {
			require.NotEmpty(t, fault.Text(err))
		}
	})
}
