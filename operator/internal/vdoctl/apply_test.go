package vdoctl

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preview"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// Someone changes, makes or deletes what configure has read, while it asks.
func TestConfigureDoesNotUndoWhatSomebodyElseChanged(t *testing.T) {
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: operatorNamespace, Name: name} }
	for name, meanwhile := range map[string]func(c client.Client) error{
		"VDOConfig changed": func(c client.Client) error {
			var v v1alpha1.VDOConfig
			require.NoError(t, c.Get(t.Context(), key("vdo"), &v))
			v.Spec.Suspend = true
			return c.Update(t.Context(), &v)
		},
		"Secret changed": func(c client.Client) error {
			var s corev1.Secret
			require.NoError(t, c.Get(t.Context(), key("vc"), &s))
			s.Data = map[string][]byte{"password": []byte("theirs")}
			return c.Update(t.Context(), &s)
		},
		"VsphereCloudConfig deleted": func(c client.Client) error {
			return c.Delete(t.Context(), &v1alpha1.VsphereCloudConfig{ObjectMeta: metaOf(operatorNamespace, "west")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := installation(t)
			objects, to := drafted(t, c)
			require.NoError(t, meanwhile(c))
			_, err := to.all(t.Context(), objects, true)
			require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%v", err)
			require.ErrorContains(t, err, "it was changed since it was read")

			objects, to = drafted(t, c)
			to.force = true
			for _, u := range objects { // a status write meanwhile is no conflict
				if west := new(v1alpha1.VsphereCloudConfig); c.Get(t.Context(), key("west"), west) == nil {
					west.Status.Message = "seen before " + describeObject(u)
					require.NoError(t, c.Update(t.Context(), west))
				}
				require.NoError(t, must.Err(to.one(t.Context(), u, false)), "run again")
			}
			var v v1alpha1.VDOConfig
			require.NoError(t, c.Get(t.Context(), key("vdo"), &v))
			require.Equal(t, name == "VDOConfig changed", v.Spec.Suspend)
			require.Equal(t, v1alpha1.UpgradeMode("Manual"), v.Spec.Upgrade)
		})
	}
}

// What is applied to an object that is being deleted goes with it.
func TestApplyWaitsForNoDeletion(t *testing.T) {
	_, c := installation(t)
	v := &v1alpha1.VDOConfig{ObjectMeta: metaOf(operatorNamespace, "vdo")}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(v), v))
	v.Finalizers = []string{"vdo.vmware.com/drivers"}
	require.NoError(t, c.Update(t.Context(), v))
	require.NoError(t, c.Delete(t.Context(), v))
	u := must.Have(manifest(v))(t)
	tried, err := (&applier{Client: c}).all(t.Context(), []client.Object{u}, true)
	must.Fail(t, err, fault.Conflict, "VDOConfig vmware-system-vdo/vdo: it is being deleted")
	require.Empty(t, tried, "a person is asked about what will be")

	// Its CRD waits for it, and for the operator that ends it.
	crd := unnamespaced("apiextensions.k8s.io/v1", "CustomResourceDefinition", "vdoconfigs.vdo.vmware.com")
	crd.SetFinalizers([]string{"customresourcecleanup.apiextensions.k8s.io"})
	require.NoError(t, c.Create(t.Context(), crd.DeepCopy()))
	require.NoError(t, c.Delete(t.Context(), crd.DeepCopy()))
	must.Have((&applier{Client: c}).apply(t.Context(), crd, true))(t)
}

// A dry run takes a missing kind for one of a CRD that is applied before. No CRD brings admission policies.
func TestADryRunRefusesAPolicyThatTheClusterLacks(t *testing.T) {
	for group, reason := range map[string]fault.Reason{
		"vdo.vmware.com": "", "admissionregistration.k8s.io": fault.Incompatible,
	} {
		c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: group}}
			}}).Build()
		_, err := (&applier{Client: c}).all(t.Context(), []client.Object{unnamespaced(group+"/v1", "New", "a")}, true)
		require.Equal(t, reason, fault.ReasonOf(err), "%v", err)
	}
}

// answering is a run of configure that has read the cluster, up to the name of the vCenter.
func answering(t *testing.T, c client.Client) (*configureOptions, *draft) {
	o := newConfigure(&app{})
	o.cluster.namespace, o.vcenter = operatorNamespace, "west"
	o.given = func(flag string) bool { return flag == "vcenter" }
	d := must.Have(o.begin())(t)
	require.NoError(t, d.readResources(t.Context(), c))
	d.readers = append(d.readers, c)
	d.makeMissing()
	require.NoError(t, o.chosen(t.Context(), d))
	fields := o.fields()
	for i := range fields {
		o.offer(d, fields[i:])
	}
	return o, d
}

// drafted are the answers of a person about what is there.
func drafted(t *testing.T, c client.Client) ([]client.Object, *applier) {
	o, d := answering(t, c)
	o.port, o.username, o.password, o.upgrade, o.bundle = "443", "u", "new", "Manual", "registry.site/vdo:1"
	require.NoError(t, o.take(d))
	objects := must.Have(d.manifests(t.Context()))(t)
	return objects, &applier{Client: c}
}

// All that is wrong is said at once, each with its flag; what is wrong with a file, as of any command.
func TestWrongAnswersAreSaidWithTheirFlags(t *testing.T) {
	for _, c := range []struct{ flag, value, says string }{
		{"bundle", "", `--bundle "": it is needed`},
		{"bundle", "vdo/drivers:1", `--bundle "vdo/drivers:1": it names no registry`}, // as at Docker Hub
		{"drivers", "none", "not one of both, csi, cpi"},
		{"server", "https://vc/", `--server "https://vc/": a host name or IP address alone: without https://`},
		{"server", "vc.site:8443", "give the port with --port"},
		{"port", "65536", `--port "65536": not a number`},
		{"thumbprint", "abc", "not 20 (SHA-1) or 32 (SHA-256) pairs"},
		{"username", "vdo", `--username "vdo": it has no domain`},
		{"zone-category", "k8s-zone", `--region-category "": zones need regions`},
		{"region-category", "k8s-region", `--zone-category "": regions need zones`},
	} {
		o := newConfigure(&app{})
		for _, f := range o.fields() {
			if f.flag == c.flag {
				*f.to = c.value
			}
		}
		err := o.valid(func(string) bool { return true })
		require.ErrorContains(t, err, c.says)
		require.ErrorContains(t, err, `--server "`)
		require.NotContains(t, fault.Text(err), `regions; "" for none`, "it was refused")
	}
	o := newConfigure(&app{})
	o.caFile, o.given = "ca.pem", func(flag string) bool { return flag == "thumbprint" }
	require.ErrorContains(t, o.valid(o.given), "--thumbprint is given as well")
	for file, reason := range map[string]fault.Reason{"none.crt": fault.NotFound, t.TempDir(): fault.Storage} {
		o := newConfigure(&app{})
		o.caFile = file
		err := o.valid(func(flag string) bool { return flag == "vcenter-ca-file" })
		require.Equal(t, reason, fault.ReasonOf(err), err)
	}
}

// Someone may save the file while configure waits for an answer.
func TestConfigureDoesNotReplaceAFileThatSomebodyHasChanged(t *testing.T) {
	const text = "apiVersion: vdo.vmware.com/v1alpha1\nkind: VsphereCloudConfig\nmetadata: {name: a}\nspec: {vcIp: a}\n"
	for name, c := range map[string]struct {
		before, meanwhile string
		reason            fault.Reason
	}{
		"as it was": {text, text, ""},
		"made":      {"", text, fault.Conflict},
		"changed":   {text, text + "# theirs\n", fault.Conflict},
		"removed":   {text, "", fault.Conflict},
	} {
		o := newConfigure(&app{})
		o.write, o.yes = filepath.Join(t.TempDir(), "site.yaml"), true
		put := func(text string) {
			_ = os.Remove(o.write)
			if text != "" {
				require.NoError(t, os.WriteFile(o.write, []byte(text), 0o600))
			}
		}
		put(c.before)
		var err error
		o.replaced, err = o.replaces()
		require.NoError(t, err, name)
		put(c.meanwhile)
		require.Equal(t, c.reason, fault.ReasonOf(o.replace(t.Context(), []byte("new"))), name)
		is, _ := os.ReadFile(o.write)
		if want := c.meanwhile; c.reason != "" {
			require.Equal(t, want, string(is), name)
		}
	}
}

// The name may be a link into a working copy. What is no file is told before anything else.
func TestConfigureWritesThroughALink(t *testing.T) {
	dir := t.TempDir()
	repo, link := filepath.Join(dir, "repo"), filepath.Join(dir, "site.yaml")
	require.NoError(t, os.Mkdir(repo, 0o700))
	require.NoError(t, os.Symlink("repo/site.yaml", link))
	for name, want := range map[string]string{
		os.DevNull: "it is no regular file", repo: "it is no regular file", link: "no such file", // yet
	} {
		o := newConfigure(&app{})
		o.write = name
		require.ErrorContains(t, must.Err(o.replaces()), want)
	}
	file := filepath.Join(repo, "site.yaml")
	for _, theirs := range []string{"kept", "-----BEGIN PUBLIC KEY-----\nYQ==\n-----END PUBLIC KEY-----\n", strings.Repeat("#", 4<<20+1)} {
		require.NoError(t, os.WriteFile(file, []byte(theirs), 0o600))
		o := newConfigure(&app{})
		o.write = file
		require.ErrorContains(t, must.Err(o.replaces()), "read "+file, "it is someone's key, bundle or manifest")
	}
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, userfile.Write(link, []byte("text"), 0o644))
	to, err := os.Readlink(link)
	require.NoError(t, err, "it is no link any more")
	require.Equal(t, "repo/site.yaml", to)
	info := must.Have(os.Stat(file))(t)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	left := must.Have(os.ReadDir(repo))(t)
	require.Len(t, left, 1)
}

// An export of another cluster says whose it was, and what the API server and kubectl noted.
func TestAManifestIsWhatAPersonWrites(t *testing.T) {
	x := &corev1.ConfigMap{ObjectMeta: metaOf("vdo", "ca"), Data: map[string]string{"ca.crt": "c"}}
	x.UID, x.ResourceVersion, x.Finalizers = "u", "1", []string{"f"}
	x.OwnerReferences = []metav1.OwnerReference{{Name: "compat", UID: "a"}}
	x.Labels = map[string]string{"app": "vdo"}
	x.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", v1alpha1.AnnotationRequestedAt: "1"}
	u := must.Have(manifest(x))(t)
	require.Equal(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"ca.crt": "c"},
		"metadata": map[string]any{"name": "ca", "namespace": "vdo", "labels": map[string]any{"app": "vdo"}}}, u.Object)
}

func TestAnAuthorityIsCertificatesAlone(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	key := "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n"
	for text, says := range map[string]string{
		ca:                               "",
		ca + key:                         "there is a private key in it",
		ca + key[:50]:                    "there is a private key in it",
		string(server.Certificate().Raw): "there is no PEM certificate in it",
		"":                               "there is no PEM certificate in it",
		strings.Replace(ca, "CERTIFICATE", "PUBLIC KEY", 2): "there is no PEM certificate in it",
	} {
		file := filepath.Join(t.TempDir(), "ca.pem")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		err := isAuthority(file)
		if says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "Y2FuYXJ5")
	}
}

func TestFieldsOfOthersAreNotTakenOut(t *testing.T) {
	x := &v1alpha1.VsphereCloudConfig{ObjectMeta: metaOf(operatorNamespace, "east")}
	x.Spec = v1alpha1.VsphereCloudConfigSpec{VcIP: "vc.site", Credentials: "vc", Thumbprint: "AA:BB"}
	live := must.Have(manifest(x))(t)
	x.Spec.Thumbprint = ""
	u := must.Have(manifest(x))(t)
	removed := must.Have(leaveToOthers(u, live))(t)
	require.Equal(t, [][]string{{"spec", "thumbprint"}}, removed)
	require.NotContains(t, u.Object, "spec", "all else is left to others")
	require.NoError(t, leftOver(u, u, removed))
	must.Fail(t, leftOver(live, live, removed), fault.Conflict, "spec.thumbprint would stay: others have set the field")

	// The API server merges the items of sets and of lists with keys: others' stay.
	for _, items := range [][]any{{"new", "old"}, {map[string]any{"id": "new"}, map[string]any{"id": "old"}}} {
		sent, merged := u.DeepCopy(), u.DeepCopy()
		sent.Object["spec"], merged.Object["spec"] = map[string]any{"some": items[:1]}, map[string]any{"some": items}
		require.NoError(t, leftOver(sent, sent, nil))
		require.ErrorContains(t, leftOver(sent, merged, nil), "spec.some would stay")
		fields := metav1.NewFieldsV1(`{"f:spec":{"f:some":{}}}`) // by `upgrade rollback`
		merged.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: fieldManager, Operation: "Update", FieldsV1: fields}})
		require.NoError(t, leftOver(sent, merged, nil))
		sent.Object["spec"], merged.Object["spec"] = map[string]any{"trust": map[string]any{}}, map[string]any{"trust": map[string]any{"keys": items}}
		require.ErrorContains(t, leftOver(sent, merged, nil), "spec.trust.keys would stay")
	}
}

// Another repository is accepted before the earlier operator's resource names it, and also where someone else
// has changed that already.
func TestMatrixSetAcceptsAnotherRepository(t *testing.T) {
	const from, to = "mirror.site/vdo:1", "other.site/vdo:2"
	const accepts = "metadata.annotations.vdo.vmware.com/accept-repository: other.site/vdo"
	for _, c := range []struct {
		url, to string
		want    []string // FIELD stands for the field of the resource
	}{
		{from, from, nil},
		{from, "mirror.site/vdo:2", []string{"FIELD: oci://mirror.site/vdo:1 -> oci://mirror.site/vdo:2"}},
		{from, to, []string{accepts, "FIELD: oci://mirror.site/vdo:1 -> oci://other.site/vdo:2"}},
		{to, to, []string{accepts}},
	} {
		m := &corev1.ConfigMap{ObjectMeta: metaOf("vdo", v1alpha1.LegacyMatrixName)}
		m.Data = map[string]string{legacyURL: "oci://" + c.url}
		n := &v1alpha1.CompatibilityConfig{ObjectMeta: metaOf("vdo", "old")}
		n.Spec.MatrixURL = "oci://" + c.url
		for field, x := range map[string]client.Object{"data." + legacyURL: m, "spec.matrixURL": n} {
			b := &v1alpha1.DriverBundle{ObjectMeta: metaOf("vdo", v1alpha1.LegacyMatrixName)}
			b.Spec.Reference = from
			b.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(x, fullKindOf(x))}
			k := fake.NewClientBuilder().WithScheme(scheme).WithObjects(x, b).Build()
			require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(b), b))

			edits := must.Have(edited(t.Context(), k, b, c.to))(t)
			var got []string
			for _, x := range edits {
				got = append(got, x.changes()...)
			}
			require.Equal(t, strings.ReplaceAll(strings.Join(c.want, "\n"), "FIELD", field), strings.Join(got, "\n"))
			would := b.DeepCopy()
			would.Spec.Reference = c.to
			o := &matrixOptions{app: &app{}, consentFlags: consentFlags{yes: true}}
			must.Have(o.follow(t.Context(), k, b, would))(t)
			require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(x), x))
			require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(b), b))
			is := map[string]string{"data." + legacyURL: m.Data[legacyURL], "spec.matrixURL": n.Spec.MatrixURL}
			require.Equal(t, "oci://"+c.to, is[field])
			require.Equal(t, c.to == to, b.Annotations[v1alpha1.AnnotationAcceptRepository] == "other.site/vdo")
		}
	}
}

// Without a name the drivers that were changed last go back, whatever is on record of the others.
func TestTheGroupThatWasChangedLastGoesBack(t *testing.T) {
	row := func(name string, day int, current bool) v1alpha1.RevisionStatus {
		at := metav1.NewTime(time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC))
		return v1alpha1.RevisionStatus{Name: name, Group: name[:3], Bundle: "new/vdo@" + name,
			Outcome: "Healthy", Since: at, Current: current}
	}
	v := &v1alpha1.VDOConfig{}
	v.Status.Revisions = []v1alpha1.RevisionStatus{
		row("cpi-2", 5, false), row("cpi-1", 1, false), row("csi-3", 3, false), row("csi-4", 4, true),
		row("cpi-9", 9, true), row("cni-9", 9, true)}
	to := must.Have(revisionToGoBackTo(v, "new/vdo", ""))(t)
	require.Equal(t, "cpi-2", to.Name, "it was installed again after cpi-1")

	v.Status.Revisions[0].Bundle = "old/vdo@cpi-2"
	to = must.Have(revisionToGoBackTo(v, "new/vdo", ""))(t)
	require.Equal(t, "cpi-1", to.Name, "the registry moved after cpi-2")
	_, err := revisionToGoBackTo(v, "other/vdo", "")
	require.ErrorContains(t, err, "none is from the accepted bundle's repository, so name one of these: csi-3, cpi-1, cpi-2")
}

// The operator may write a status while a person answers; what someone else changes of the same is
// told.
func TestARollbackGoesOnWhereAStatusWasWrittenMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(v *v1alpha1.VDOConfig)
		reason    fault.Reason
	}{
		"the status is written": {func(v *v1alpha1.VDOConfig) { v.Status.Kubernetes = "v1.34.1" }, ""},
		"the pin is another": {func(v *v1alpha1.VDOConfig) {
			v.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "csi", Version: "3.6.0"}}
		}, fault.Conflict},
	} {
		v := &v1alpha1.VDOConfig{ObjectMeta: metaOf("vdo", "site")}
		v.Status.Revisions = []v1alpha1.RevisionStatus{
			{Name: "r-old", Bundle: "mirror.site/vdo@sha256:a", Releases: "csi@3.5.1", Outcome: "Healthy"},
			{Name: "r-new", Current: true, Bundle: "mirror.site/vdo@sha256:a", Releases: "csi@3.7.3", Outcome: "Healthy"}}
		b := &v1alpha1.DriverBundle{ObjectMeta: metaOf("vdo", "site")}
		b.Status.Repository, b.Status.Digest = "mirror.site/vdo", "sha256:a"
		k := fake.NewClientBuilder().WithScheme(scheme).WithObjects(v, b).Build()
		o := &rollbackOptions{app: &app{}}
		o.cluster.namespace = "vdo"
		_, both, err := o.plan(t.Context(), k, "", "jane")
		require.NoError(t, err)
		require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(v), v))
		c.meanwhile(v)
		require.NoError(t, k.Update(t.Context(), v))
		err = apply(t.Context(), k, "go back", false, changing(both...))
		require.Equal(t, c.reason, fault.ReasonOf(err), "%s: %v", name, err)
		require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(v), v))
		require.Equal(t, c.reason == "", v.Spec.PolicyOf("csi").Version == "3.5.1", name)
	}
}

// A certificate that the authority of a flag has not signed is refused: no answer would change what is trusted.
func TestTrustIsNotAskedForBesideAnAuthority(t *testing.T) {
	o := newConfigure(&app{err: &bytes.Buffer{}})
	o.caFile = "ca.crt"
	refusal := error(&vcenter.UntrustedError{SHA256: "aa"})
	require.Equal(t, refusal, o.trusts(t.Context(), "vc.site", refusal))
	require.Empty(t, o.thumbprint)
}

// What holds a driver counts where anything is done, and what holds all counts always.
func TestAPlanIsHeldBackByWhatItChanges(t *testing.T) {
	const held = `"held":[{"driver":"csi","message":"a check fails"}]`
	for text, want := range map[string]bool{
		`{"route":[{}]}`:                                                       true,
		`{"plan":{},"route":[{}],` + held + `}`:                                true,
		`{"route":[{}],` + held + `}`:                                          false, // nothing was planned
		`{"route":[{"moves":[{"driver":"csi"}]}],` + held + `}`:                false,
		`{"plan":{"steps":[{"driver":"csi","cause":"drift"}]},` + held + `}`:   true,
		`{"plan":{"steps":[{"driver":"csi","cause":"content"}]},` + held + `}`: false,
		`{"route":[{"lacks":["a release"]}]}`:                                  false,
		`{"held":[{"message":"stopped"}]}`:                                     false,
	} {
		var p preview.Preview
		require.NoError(t, json.Unmarshal([]byte(text), &p))
		require.Equal(t, want, goesOn(&p), text)
	}
}

func TestAFileRefersToWhatTheClusterHasToo(t *testing.T) {
	secret := func(user string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metaOf("vdo", "account"), Data: map[string][]byte{"username": []byte(user), "password": []byte("x")}}
	}
	for in, file := range map[string]*objects{
		"file":    {all: map[string]client.Object{"Secret vdo/account": secret("file")}},
		"cluster": {all: map[string]client.Object{}},
	} {
		v := &v1alpha1.VsphereCloudConfig{ObjectMeta: metaOf("vdo", "east")}
		v.Spec.Credentials = "account"
		k := fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret("cluster")).Build()
		read := must.Have(credentials.Read(t.Context(), readers{file, k}, v))(t)
		require.Equal(t, in, read.Username)
	}
}

func TestALongListIsShownByItsChangedItems(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		shows    []string
	}{
		"items with a key":    {`[{"driver": "csi", "version": "1"}, {"driver": "snap", "version": "2"}]`, `[{"driver": "csi"}, {"driver": "snap", "version": "3"}]`, []string{"spec.f[csi].version: 1 -> none", "spec.f[snap].version: 2 -> 3"}},
		"swapped":             {`[{"id": "a", "is": 1000650000}, {"id": "b", "is": true}]`, `[{"id": "a", "is": true}, {"id": "b", "is": 1000650000}]`, []string{"spec.f[a].is: 1000650000 -> true", "spec.f[b].is: true -> 1000650000"}},
		"one argument":        {`["--a=1", "--b"]`, `["--a=2", "--b"]`, []string{"spec.f[]: --a=1 -> --a=2"}},
		"of items with a key": {`[{"id": "a"}, {"id": "b"}]`, `[{"id": "b"}, {"id": "a"}]`, []string{"spec.f[order]: a, b -> b, a"}},
		"another order":       {`["--a", "--b"]`, `["--b", "--a"]`, []string{"spec.f[]: --a, --b -> --b, --a"}},
		"several":             {`["--a", "--b"]`, `["--c", "--d"]`, []string{"spec.f[]: --a -> none", "spec.f[]: --b -> none", "spec.f[]: --c", "spec.f[]: --d"}},
		"items without a key": {`[{"from": 1, "to": 2}, {"from": 3, "to": 4}]`, `[{"from": 1, "to": 4}, {"from": 3, "to": 2}]`, []string{`spec.f[]: {"from":1,"to":2} -> none`, `spec.f[]: {"from":3,"to":4} -> none`, `spec.f[]: {"from":1,"to":4}`, `spec.f[]: {"from":3,"to":2}`}},
		"what is empty":       {`{"g": {}, "h": null}`, `{}`, []string{"spec.f: {}", "spec.f.g: {} -> none"}},
	} {
		of := func(text string) *unstructured.Unstructured {
			u := unnamespaced("apps/v1", "Deployment", "d")
			var v any
			require.NoError(t, json.Unmarshal([]byte(text), &v))
			u.Object["spec"] = map[string]any{"f": v}
			return u
		}
		require.Equal(t, c.shows, edit{of(c.from), of(c.to)}.changes(), name)
	}
	was, is := unnamespaced("v1", "Namespace", "a"), unnamespaced("v1", "Namespace", "a")
	is.SetLabels(map[string]string{"app": "vdo"})
	require.Equal(t, []string{"metadata.labels.app: vdo"}, edit{was, is}.changes(), "labels alone")
}
