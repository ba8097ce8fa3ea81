package sipcluster

import (
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services/dex"
)

// A jump host and a login: from the tenant's Secrets and the hosts' to what the programs read, through a Secret
// that changes and one that goes, more hosts, and removal; and nothing secret anywhere but in Secrets.
func TestJumpHostAndLoginFollowSecretsAndHosts(t *testing.T) {
	const spec = `
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: N}}}
services:
  jumpHost: [{nodePort: PORT1, nodeInterfaceId: oam}]
  auth:
    - nodePort: PORT2
      issuer: https://login.tenant.site:30556
      staticClients: [{id: console, secret: console, redirectURIs: ["https://console.site/callback"]}]
      staticPasswords: [{email: alice@tenant.site, userID: "1", secret: alice}]
`
	const first, changed = "canary-5b0c-of-the-client", "canary-5b0c-another"
	w := start(t)
	w.hosts("a", "b")
	secret := func(name string, data map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, StringData: data}
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("canary-5b0c"), bcrypt.DefaultCost)
	require.NoError(t, err)
	alice := secret("alice", map[string]string{"hash": string(hash)})
	require.NoError(t, w.Create(t.Context(), alice))
	r := w.operator(w.own)
	jump, auth := services.Name("t", services.JumpHost, 0), services.Name("t", services.Auth, 0)

	w.sip("t", replace(spec, "N}", "1}"))
	w.stands(r, "t", airship.ReasonInfraServiceFailure, "a") // a login that fails keeps no host from the tenant
	w.says("t", airship.ReasonInfraServiceFailure, "spec.services.auth[0].staticClients[0].secret", true)
	require.NotEmpty(t, read[appsv1.Deployment](w, jump).UID, "the other service runs")

	require.NoError(t, w.Create(t.Context(), secret("console", map[string]string{"clientSecret": first})))
	w.stands(r, "t", airship.ReasonSucceeded, "a")
	login := func() string { return string(read[corev1.Secret](w, auth+"-config").Data[path.Base(dex.ConfigFile)]) }
	require.Contains(t, login(), first)

	// Programs read hosts and secrets when they start.
	ends, rolled := read[appsv1.Deployment](w, jump).Generation, read[appsv1.Deployment](w, auth).Generation
	w.change("t", replace(spec, "N}", "2}"))
	require.NoError(t, w.Update(t.Context(), secret("console", map[string]string{"clientSecret": changed})))
	w.stands(r, "t", airship.ReasonSucceeded, "a", "b")
	require.Greater(t, read[appsv1.Deployment](w, jump).Generation, ends)
	require.Regexp(t, "^a\tWorker\t\\S+\nb\t", read[corev1.ConfigMap](w, jump+"-config").Data["hosts"])
	require.Greater(t, read[appsv1.Deployment](w, auth).Generation, rolled)
	require.Contains(t, login(), changed)

	for _, name := range []string{jump, auth} { // the namespace is held to the restricted Pod Security Standard
		template := read[appsv1.Deployment](w, name).Spec.Template
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Namespace, pod.Name = w.home("t"), "try"
		require.NoError(t, w.Create(t.Context(), pod, client.DryRunAll))
	}

	// What runs stays when a Secret goes.
	require.NoError(t, w.Delete(t.Context(), alice))
	w.stands(r, "t", airship.ReasonInfraServiceFailure, "a", "b")
	w.says("t", airship.ReasonInfraServiceFailure, "spec.services.auth[0].staticPasswords[0].secret", true)
	require.NotEmpty(t, read[appsv1.Deployment](w, auth).UID)

	all := mustJSON(t, w.get("t")) + told(r, "")
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}} {
		w.each(list, func(o metav1.Object) { all += mustJSON(t, o) })
	}
	for _, s := range []string{first, changed, "canary-5b0c", "bmc-password-of-", string(hash), "PRIVATE KEY"} {
		require.NotContains(t, all, s)
	}
	require.NoError(t, w.Delete(t.Context(), w.get("t")))
	w.settle(r, "t")
	w.gone("t")
}
