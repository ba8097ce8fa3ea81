package drivers_test

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

func allowed(c *drivers.Ceiling, object string) bool {
	return slices.ContainsFunc(c.Objects, func(r *regexp.Regexp) bool { return r.MatchString(object) })
}

func TestEachPlaceOfOursIsWithinTheCeilingAndNoOtherWorkloadIs(t *testing.T) {
	ours := map[string]bool{}
	for _, p := range drivers.Places {
		c := drivers.CeilingOf(p.Driver)
		if p.Foreign {
			require.False(t, allowed(c, p.String()), "%s is another installer's", p)
			continue
		}
		ours[p.String()] = true
		require.True(t, allowed(c, p.String()), "%s", p)
		require.NotEmpty(t, c.Pods[p.String()].Account, "%s: its pods' account", p)
	}
	for _, d := range []matrix.Driver{matrix.CNI, matrix.CPI, matrix.SnapshotController, matrix.CSI} {
		c := drivers.CeilingOf(d)
		for name, pods := range c.Pods {
			namespace, _, _ := strings.Cut(strings.Fields(name)[1], "/")
			require.Contains(t, c.Accounts, namespace+"/"+pods.Account, "%s: an account that the driver may name", name)
			require.True(t, ours[name] || name == "Deployment kube-system/snapshot-validation-deployment", "%s has pods and no place", name)
		}
	}
	require.Nil(t, drivers.CeilingOf("another"), "what is not known may hold nothing")
}

// The API server holds whoever has the operator's token to the rights and accounts that the operator
// accepts of a manifest.
func TestTheAdmissionPolicyHasTheSameRightsAndAccounts(t *testing.T) {
	manifests := deploy.Manifests()
	i := slices.IndexFunc(manifests, func(m deploy.Manifest) bool { return m.Name == deploy.RightsPolicy })
	var policy admissionv1.ValidatingAdmissionPolicy
	require.NoError(t, yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests[i].Data), 4096).Decode(&policy))
	is := map[string]string{}
	for _, v := range policy.Spec.Variables {
		is[v.Name] = strings.ReplaceAll(v.Expression, "' + '", "")
	}
	grants := map[string]string{ // of the roles that the operator makes for OpenShift
		"vdo-cloud-controller-manager-scc": "^(security[.]openshift[.]io/securitycontextconstraints use hostnetwork-v2)$",
		"vdo-vsphere-csi-node-scc":         "^(security[.]openshift[.]io/securitycontextconstraints use privileged)$",
	}
	accounts := map[string]bool{"": true}
	for _, d := range []matrix.Driver{matrix.CNI, matrix.CPI, matrix.SnapshotController, matrix.CSI} {
		for role, may := range drivers.CeilingOf(d).Grants {
			grants[role] = may.String()
		}
		for name, pods := range drivers.CeilingOf(d).Pods {
			if name != "Deployment kube-system/snapshot-validation-deployment" { // never installed
				accounts[pods.Account] = true
			}
		}
	}
	quoted := func(s string) string { return "'" + s + "'" }
	var byRole, names []string
	for _, role := range slices.Sorted(maps.Keys(grants)) {
		byRole = append(byRole, quoted(role)+": "+quoted(grants[role]))
	}
	for _, a := range slices.Sorted(maps.Keys(accounts)) {
		names = append(names, quoted(a))
	}
	require.Equal(t, quoted(drivers.Sensitive.String()), is["sensitive"])
	require.Equal(t, quoted(drivers.SensitiveWrites.String()), is["sensitiveWrites"])
	require.Equal(t, "{"+strings.Join(byRole, ", ")+"}", is["grants"])
	require.Equal(t, "["+strings.Join(names, ", ")+"]", is["accounts"])
}
