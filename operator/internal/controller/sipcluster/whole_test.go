package sipcluster

import (
	"crypto/rand"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services/dex"
)

const wholeSpec = `
nodes: {Worker: {FLAVOR, topologyKey: rack, count: {active: N}}}
services:
  jumpHost:
    - nodePort: PORT1
      nodeInterfaceId: oam
      externalTrafficPolicy: Local
      bmc: {caSecret: bmc-ca}
      nodeSSHPrivateKeys: node-keys
  auth:
    - nodePort: PORT2
      issuer: https://login.tenant.site:30556
      staticClients: [{id: console, secret: console, redirectURIs: ["https://console.site/callback"]}]
      staticPasswords: [{email: alice@tenant.site, userID: "1", secret: alice}]
`

// put makes a Secret beside the SIPCluster, or changes it.
func (w *world) put(name string, data map[string]string) {
	w.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, StringData: data}
	if err := w.Create(w.Context(), s); err != nil {
		require.NoError(w, client.IgnoreAlreadyExists(err))
		require.NoError(w, w.Update(w.Context(), s))
	}
}

// read reads what a service has.
func read[T any, P interface {
	*T
	client.Object
}](w *world, name string) *T {
	w.Helper()
	o := P(new(T))
	require.NoError(w, w.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, o))
	return (*T)(o)
}

// A jump host and a login as they are really rendered: from the tenant's Secrets and the hosts'
// to what the programs read, through a Secret that changes and one that goes, more hosts,
// and removal; and nothing secret anywhere but in Secrets.
func TestJumpHostAndLoginAsTheyAreRendered(t *testing.T) {
	const secret, changed = "canary-5b0c-of-the-client", "canary-5b0c-another"
	w := start(t)
	w.hosts("a", "b")
	hash, err := bcrypt.GenerateFromPassword([]byte("canary-5b0c"), bcrypt.DefaultCost)
	require.NoError(t, err)
	w.put("alice", map[string]string{"hash": string(hash)})
	r := w.operator(w.own)
	recorder := events.NewFakeRecorder(1000)
	r.Render, r.Rand, r.Writer.Recorder = services.Render, rand.Reader, recorder
	jump, auth := services.Name("t", services.JumpHost, 0), services.Name("t", services.Auth, 0)

	w.sip("t", replace(wholeSpec, "N", "1"))
	w.settle(r, "t")
	w.says("t", airship.ReasonInfraServiceFailure, "spec.services.auth[0].staticClients[0].secret", true)
	require.NotEmpty(t, read[appsv1.Deployment](w, jump).UID, "the other service runs")
	require.Equal(t, []string{"a"}, names(w.labelled("t")), "a login that fails keeps no host from the tenant")

	w.put("console", map[string]string{"clientSecret": secret})
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
	require.Equal(t, []string{"a"}, names(w.labelled("t")))
	require.Equal(t, corev1.ServiceExternalTrafficPolicyLocal, read[corev1.Service](w, jump).Spec.ExternalTrafficPolicy)
	require.Regexp(t, "^a\tWorker\t\\S+\n$", read[corev1.ConfigMap](w, jump+"-config").Data["hosts"])
	login := func() string { return string(read[corev1.Secret](w, auth+"-config").Data[path.Base(dex.ConfigFile)]) }
	require.Contains(t, login(), secret)

	// Programs read hosts and secrets when they start.
	hostKeys, ends := read[corev1.Secret](w, jump+"-host-keys").Data, read[appsv1.Deployment](w, jump).Generation
	rolled := read[appsv1.Deployment](w, auth).Generation
	w.change("t", replace(wholeSpec, "N", "2"))
	w.put("console", map[string]string{"clientSecret": changed})
	w.settle(r, "t")
	require.Equal(t, airship.ReasonSucceeded, w.ready("t").Reason, w.ready("t").Message)
	require.Greater(t, read[appsv1.Deployment](w, jump).Generation, ends)
	require.Equal(t, hostKeys, read[corev1.Secret](w, jump+"-host-keys").Data)
	require.Contains(t, read[corev1.ConfigMap](w, jump+"-config").Data["hosts"], "\nb\t")
	require.Greater(t, read[appsv1.Deployment](w, auth).Generation, rolled)
	require.Contains(t, login(), changed)

	// What runs stays when a Secret goes.
	require.NoError(t, w.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "alice"}}))
	w.settle(r, "t")
	w.says("t", airship.ReasonInfraServiceFailure, "spec.services.auth[0].staticPasswords[0].secret", true)
	require.NotEmpty(t, read[appsv1.Deployment](w, auth).UID)
	require.Equal(t, []string{"a", "b"}, names(w.labelled("t")))

	w.nothingSecret(recorder, secret, changed, "canary-5b0c", "bmc-password-of-", string(hash), "PRIVATE KEY")
	require.NoError(t, w.Delete(t.Context(), w.get("t")))
	w.settle(r, "t")
	w.gone("t")
}

// nothingSecret looks through all that is no Secret.
func (w *world) nothingSecret(recorder *events.FakeRecorder, secrets ...string) {
	w.Helper()
	var all strings.Builder
	all.WriteString(mustJSON(w, w.get("t")))
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}} {
		for _, ns := range []string{w.ns, w.system} {
			require.NoError(w, w.List(w.Context(), list, client.InNamespace(ns)))
			all.WriteString(mustJSON(w, list))
		}
	}
	for len(recorder.Events) > 0 {
		all.WriteString(<-recorder.Events)
	}
	for _, s := range secrets {
		require.NotContains(w, all.String(), s)
	}
}
