package model

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// maxStatus is how long a resource with its status may be, whatever happens: etcd takes 1.5 MiB for the
// whole object, and watchers get all of it at each change.
const maxStatus = 48 << 10

// model is what the program knows of what should be.
type model struct {
	late   error // of an event in the middle of a pass
	amid   bool  // something happened in the middle of the pass
	failed error // of the last pass

	mirrorLogins []string // passwords that were the mirror's
	refused      int      // logins that had been refused at the vCenter when the program began
	inputs       int      // how often what is tried at the vCenter changed
	began        time.Time
	deaths       int // of the operator, of which each may lose the answer to a login

	audited int                // writes that were looked at
	rolled  map[string]*rolled // by workload
	touched map[string]bool    // workloads that a hand has changed
	served  map[string]bool    // drivers that were complete and are wanted since
	orphans bool               // drivers were left to their users
	lost    bool               // the inventory was taken away by hand
	anew    inventory.Key      // what cannot be changed, and is deleted so that it can be recreated
	back    bool               // an upgrade is gone back from, so that pods are replaced once more

	was  []v1alpha1.VDOConfig // before a pass
	goes inventory.Inventory  // of a VDOConfig that was being deleted before a pass
}

// rolled is how often a workload's pods were replaced for one and the same reason.
type rolled struct {
	cause, template string
	left            int
}

// The drivers and what of theirs has to be there. It is the same for every bundle of this site.
var essentials = map[string][]inventory.ID{
	"cpi": {
		apps("DaemonSet", "kube-system", "vsphere-cloud-controller-manager"),
		object("", "ServiceAccount", "kube-system", "cloud-controller-manager"),
		object("", "ConfigMap", "kube-system", "vsphere-cloud-config"),
		object("", "Secret", "kube-system", "vsphere-cloud-secret"),
		rbac("ClusterRole", "system:cloud-controller-manager"),
		rbac("ClusterRoleBinding", "system:cloud-controller-manager"),
		pullCopy,
	},
	"snapshot-controller": {
		apps("Deployment", "kube-system", "snapshot-controller"),
		object("", "ServiceAccount", "kube-system", "snapshot-controller"),
		pullCopy,
	},
	"csi": {
		apps("Deployment", csiNamespace, "vsphere-csi-controller"),
		apps("DaemonSet", csiNamespace, "vsphere-csi-node"),
		object("", "ServiceAccount", csiNamespace, "vsphere-csi-controller"),
		object("", "Secret", csiNamespace, "vsphere-config-secret"),
		object("", "Secret", csiNamespace, "vdo-registry-pull"),
		rbac("ClusterRole", "vsphere-csi-controller-role"),
		object("storage.k8s.io", "CSIDriver", "", "csi.vsphere.vmware.com"),
	},
}

// pullCopy is the mirror's login beside the two drivers in kube-system.
var pullCopy = object("", "Secret", "kube-system", "vdo-registry-pull")

var driversInOrder = []string{"cpi", "snapshot-controller", "csi"}

func object(group, kind, ns, name string) inventory.ID {
	return inventory.ID{Key: inventory.Key{Group: group, Kind: kind, Namespace: ns, Name: name}, Version: "v1"}
}
func apps(kind, ns, name string) inventory.ID { return object("apps", kind, ns, name) }
func rbac(kind, name string) inventory.ID     { return object("rbac.authorization.k8s.io", kind, "", name) }

func isWorkload(id inventory.ID) bool { return id.Kind == "DaemonSet" || id.Kind == "Deployment" }

// read returns an object, or nil.
func (w *world) read(id inventory.ID) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: id.Group, Version: id.Version, Kind: id.Kind})
	err := w.Get(w.ctx, types.NamespacedName{Namespace: id.Namespace, Name: id.Name}, o)
	w.must(client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return o
}

// left is what of the drivers is there.
func (w *world) left() (all []inventory.Key) {
	for _, driver := range driversInOrder {
		for _, id := range essentials[driver] {
			if w.read(id) != nil {
				all = append(all, id.Key)
			}
		}
	}
	return all
}

// configs are all VDOConfigs.
func (w *world) configs() []v1alpha1.VDOConfig { return own(w, &v1alpha1.VDOConfigList{}).Items }

func wants(v *v1alpha1.VDOConfig, driver string) bool {
	if driver == "cpi" {
		return v.Spec.CloudProvider != nil
	}
	return v.Spec.StorageProvider != nil
}

// wanted tells whether every VDOConfig that is not on its way out asks for a driver:
// whichever is in force does.
func wanted(all []v1alpha1.VDOConfig, driver string) bool {
	stays := func(v v1alpha1.VDOConfig) bool { return v.DeletionTimestamp.IsZero() }
	return slices.ContainsFunc(all, stays) &&
		!slices.ContainsFunc(all, func(v v1alpha1.VDOConfig) bool { return stays(v) && !wants(&v, driver) })
}

// before notes what a pass finds.
func (w *world) before(which string) {
	w.was, w.goes = w.configs(), inventory.Inventory{}
	for _, v := range w.was {
		if !v.DeletionTimestamp.IsZero() && w.goes.Len() == 0 {
			var cm corev1.ConfigMap
			key := types.NamespacedName{Namespace: namespace, Name: inventory.VDOConfigs.ConfigMap(v.Name)}
			w.must(client.IgnoreNotFound(w.Get(w.ctx, key, &cm)))
			w.goes, _ = inventory.Parse("x", []byte(cm.Data[inventory.DataKey])) //nolint:errcheck // damaged, it removes nothing
		}
	}
	if which != passDrivers {
		return
	}
	cause, exists := w.cause(), w.workloads()
	maps.DeleteFunc(w.rolled, func(name string, _ *rolled) bool { // what comes anew is another one
		return !slices.ContainsFunc(exists, func(x workload) bool { return x.key() == name })
	})
	for _, x := range exists {
		r := w.rolled[x.key()]
		if r == nil || r.cause != cause {
			w.rolled[x.key()] = &rolled{cause: cause, template: text(x.template), left: 1}
			if w.back {
				w.rolled[x.key()].left++
			}
		} else if w.touched[x.key()] {
			r.template = text(x.template)
		}
	}
}

// cause is what the pods of the drivers may depend on. While it is the same, no pod is replaced.
func (w *world) cause() string {
	var out strings.Builder
	for _, v := range w.was {
		spec := v.Spec.DeepCopy()
		spec.Suspend, spec.OnDelete = false, ""
		retry := v.Annotations[v1alpha1.AnnotationRetry]
		fmt.Fprintf(&out, "%s %v %s %s\n", v.Name, v.DeletionTimestamp.IsZero(), retry, text(spec))
	}
	for _, b := range own(w, &v1alpha1.DriverBundleList{}).Items {
		fmt.Fprintf(&out, "%s@%s\n", b.Status.Repository, b.Status.Digest)
	}
	for _, v := range own(w, &v1alpha1.VsphereCloudConfigList{}).Items {
		out.WriteString(text(v.Spec))
	}
	if all := w.site.vc.Accepted(vcsim.Admin.Username); len(all) > 0 {
		out.WriteString(all[len(all)-1])
	}
	fmt.Fprintf(&out, "%d nodes, mirror %s", len(w.planes()), w.mirrorLogins[len(w.mirrorLogins)-1])
	return out.String()
}

func text(v any) string {
	data, _ := json.Marshal(v) //nolint:errchkjson // of the API
	return string(data)
}

// after holds the world against the invariants that a pass must not break.
func (w *world) after(which string, key types.NamespacedName) {
	w.secretsStaySecret()
	w.onlyVerifiedCredentials()
	w.loginsAreBounded()
	if which != passDrivers {
		return
	}
	w.whatIsWantedIsNotRemoved()
	if w.amid {
		return // the next pass can see it
	}
	w.podsAreReplacedForACause()
	for _, v := range w.configs() {
		if v.Name == key.Name {
			w.statusIsTrue(&v)
		}
	}
}

// secretsStaySecret: no password in logs, events or statuses; and these stay small.
func (w *world) secretsStaySecret() {
	for where, text := range map[string]string{"log": w.log.String(), "events": w.events.String()} {
		if i := strings.Index(text, canary); i >= 0 {
			w.fail("no secret is told", "in the %s: …%s", where, text[max(0, i-200):i+len(canary)])
		}
	}
	for _, list := range []client.ObjectList{
		&v1alpha1.VDOConfigList{}, &v1alpha1.DriverBundleList{}, &v1alpha1.VsphereCloudConfigList{},
	} {
		w.must(meta.EachListItem(own(w, list), func(item runtime.Object) error {
			o := item.(client.Object) //nolint:forcetypeassert // as all of the API
			o.SetManagedFields(nil)
			is := text(o)
			if strings.Contains(is, canary) {
				w.fail("no secret is told", "in %T %s: %s", o, o.GetName(), is)
			}
			if len(is) > maxStatus {
				w.fail("a status stays small", "%T %s has %d bytes", o, o.GetName(), len(is))
			}
			return nil
		}))
	}
}

var vcenterPassword = regexp.MustCompile(`(?:vcenter|wrong)-[0-9]+` + canary)

// onlyVerifiedCredentials: what the drivers were given, the vCenter has accepted
// before; and so has the mirror.
func (w *world) onlyVerifiedCredentials() {
	accepted := w.site.vc.Accepted(vcsim.Admin.Username)
	for _, id := range []inventory.ID{object("", "Secret", "kube-system", "vsphere-cloud-secret"), object("", "Secret", csiNamespace, "vsphere-config-secret")} {
		for _, value := range w.dataOf(id) {
			for _, password := range vcenterPassword.FindAllString(string(value), -1) {
				if !slices.Contains(accepted, password) {
					w.fail("only verified credentials are handed on", "%s has the password %q, which the vCenter never accepted", id.Key, password)
				}
			}
		}
	}
	for _, ns := range []string{"kube-system", csiNamespace} {
		id := object("", "Secret", ns, "vdo-registry-pull")
		data := w.dataOf(id)
		for _, password := range logins(data[corev1.DockerConfigJsonKey]) {
			if !slices.Contains(w.mirrorLogins, password) {
				w.fail("only verified credentials are handed on", "%s has the login %q, which the mirror never took", id.Key, password)
			}
		}
	}
}

func (w *world) dataOf(id inventory.ID) map[string][]byte {
	var s corev1.Secret
	w.must(client.IgnoreNotFound(w.Get(w.ctx, types.NamespacedName{Namespace: id.Namespace, Name: id.Name}, &s)))
	return s.Data
}

// loginsAreBounded: a refused password is tried again once for each change of what is
// tried, and otherwise once in an hour. A restart adds none: only one that loses an answer does.
func (w *world) loginsAreBounded() {
	refused := w.site.vc.Refused(vcsim.Admin.Username) - w.refused
	most := 1 + w.inputs + w.deaths + int(w.now.Sub(w.began)/(50*time.Minute))
	if refused > most {
		w.fail("failed logins are bounded", "%d, where at most %d are explained: %d changes, %s", refused, most, w.inputs, w.now.Sub(w.began))
	}
}

// whatIsWantedIsNotRemoved: the operator deletes nothing of a driver that was there and is wanted. A VDOConfig that is
// deleted takes along what it installed, also where another one waits to be active.
func (w *world) whatIsWantedIsNotRemoved() {
	writes, n := w.wire.written(w.audited)
	w.audited = n
	now := w.configs()
	for _, x := range writes {
		if x.method != "DELETE" {
			continue
		}
		for driver, ids := range essentials {
			for _, id := range ids {
				if _, goes := w.goes.Get(id.Key); !goes && id.Key != w.anew && strings.HasSuffix(x.path, "/"+id.Name) && (id.Namespace == "" || strings.Contains(x.path, "/"+id.Namespace+"/")) &&
					strings.Contains(x.path, "/"+strings.ToLower(id.Kind)) && wanted(w.was, driver) && wanted(now, driver) {
					w.fail("what is wanted is not removed", "the operator deleted %s", id.Key)
				}
			}
		}
	}
}

// podsAreReplacedForACause: a workload's template changes at most once for each change
// of what it is made of, and not at all once it had come to rest.
func (w *world) podsAreReplacedForACause() {
	for _, x := range w.workloads() {
		r := w.rolled[x.key()]
		template := text(x.template)
		if r == nil || r.template == template {
			continue
		}
		r.template = template
		if w.touched[x.key()] {
			delete(w.touched, x.key())
			continue
		}
		if r.left--; r.left < 0 {
			w.fail("pods are replaced for a cause", "the template of %s changed and nothing that it is made of had: %s", x.key(), text(x.Object))
		}
	}
}

// statusIsTrue holds what a VDOConfig says against the world.
func (w *world) statusIsTrue(v *v1alpha1.VDOConfig) {
	current := func(typ string) bool {
		c := meta.FindStatusCondition(v.Status.Conditions, typ)
		return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == v.Generation && w.failed == nil
	}
	if c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionResolved); c != nil && c.Status == metav1.ConditionTrue && c.Message == "" {
		w.fail("a status is true", "Resolved is True and says of nothing that it was")
	}
	for driver, typ := range map[string]string{"cpi": v1alpha1.ConditionCPI, "csi": v1alpha1.ConditionCSI} {
		if current(typ) {
			w.driverRuns(driver, typ+"=True")
		}
	}
	if !current(v1alpha1.ConditionReady) || !v.DeletionTimestamp.IsZero() || w.graced(v) {
		return
	}
	for _, driver := range driversInOrder {
		if wants(v, driver) {
			w.driverRuns(driver, "Ready=True")
			w.driverIsWhole(driver, "Ready=True", nil)
			w.served[driver] = true
			continue
		}
		delete(w.served, driver)
		if w.orphans {
			continue
		}
		for _, id := range essentials[driver] {
			shared := id.Key == pullCopy.Key && (wants(v, "cpi") || wants(v, "csi"))
			if !w.lost && !shared && w.read(id) != nil {
				w.fail("Ready=True means that nothing unwanted is left", "%s of %s is there, and is not wanted", id.Key, driver)
			}
		}
	}
}

// graced tells whether Ready is what it was before a fault that can pass, which it may be
// for two minutes while Reconciling tells of the fault.
func (w *world) graced(v *v1alpha1.VDOConfig) bool {
	c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReconciling)
	if c == nil || c.Status != metav1.ConditionTrue {
		return false
	}
	if w.now.Sub(c.LastTransitionTime.Time) >= condition.Grace {
		w.fail("Ready is no longer True two minutes after a fault began", "%s", describe(v.Status.Conditions))
	}
	return true
}

// driverRuns holds "it runs" against the pods.
func (w *world) driverRuns(driver, claim string) {
	all := w.workloads()
	for _, id := range essentials[driver] {
		if !isWorkload(id) {
			continue
		}
		i := slices.IndexFunc(all, func(x workload) bool { return x.key() == id.Key.String() })
		if i < 0 {
			w.fail(claim+" means that it runs", "%s is not there", id.Key)
		}
		exists, wanted := w.available(all[i])
		if exists < wanted {
			w.fail(claim+" means that it runs", "%s has %d of %d pods that run as they should, on nodes that are ready", id.Key, exists, wanted)
		}
	}
}

// evil marks what a hand has spoiled.
const evil = "evil.example"

// driverIsWhole holds that everything of a driver is there and as it should be.
func (w *world) driverIsWhole(driver, claim string, except func(inventory.ID) bool) {
	for _, id := range essentials[driver] {
		if except != nil && except(id) {
			continue
		}
		o := w.read(id)
		if o == nil {
			w.fail(claim+": everything is there", "%s of %s is not", id.Key, driver)
		}
		if why := spoiled(o); why != "" {
			w.fail(claim+": everything is as it should be", "%s of %s %s: %s", id.Key, driver, why, text(o.Object))
		}
	}
}

func spoiled(o *unstructured.Unstructured) string {
	switch o.GetKind() {
	case "Secret":
		data, _, _ := unstructured.NestedMap(o.Object, "data")
		if _, bad := data["spoiled"]; bad {
			return "was edited"
		}
	case "ClusterRole":
		if rules, _, _ := unstructured.NestedSlice(o.Object, "rules"); len(rules) == 0 {
			return "has lost its rules"
		}
	case "Deployment":
		if n, set, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); set && n == 0 {
			return "is scaled to nothing"
		}
	}
	if strings.Contains(text(o.Object), evil) {
		return "was edited"
	}
	return ""
}

// atRest holds what has to be so once the site was left in peace.
func (w *world) atRest(healed bool) {
	w.nothingButSecretsHasASecret()
	for _, r := range w.rolled {
		r.left = 0
	}
	all := w.configs()
	for _, driver := range driversInOrder {
		if !wanted(all, driver) {
			delete(w.served, driver)
		}
	}
	if !healed {
		w.repaired(all)
		return
	}
	if len(all) != 1 {
		w.fail("a site where all is right becomes Ready", "there are %d VDOConfigs", len(all))
	}
	v := &all[0]
	c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != v.Generation {
		w.fail("a site where all is right becomes Ready", "%s\n%s", describe(v.Status.Conditions), w.bundles())
	}
	for _, driver := range driversInOrder {
		w.driverRuns(driver, "Ready=True")
		w.driverIsWhole(driver, "Ready=True", nil)
	}
}

func describe(conditions []metav1.Condition) string {
	var out strings.Builder
	for _, c := range conditions {
		fmt.Fprintf(&out, "%s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	return out.String()
}

func (w *world) bundles() string {
	var out strings.Builder
	for _, b := range own(w, &v1alpha1.DriverBundleList{}).Items {
		fmt.Fprintf(&out, "DriverBundle %s %s\n%s", b.Name, b.Status.Digest, describe(b.Status.Conditions))
	}
	for _, v := range own(w, &v1alpha1.VsphereCloudConfigList{}).Items {
		fmt.Fprintf(&out, "VsphereCloudConfig %s\n%s", v.Name, describe(v.Status.Conditions))
	}
	return out.String()
}

// repaired: what once ran and is wanted is there and whole, whatever is wrong with
// what else was told. What can only be made of credentials waits for these.
func (w *world) repaired(all []v1alpha1.VDOConfig) {
	if w.read(object("", "Namespace", "", csiNamespace)) == nil {
		return
	}
	for i := range all {
		if all[i].Spec.Suspend || (!all[i].DeletionTimestamp.IsZero() && all[i].Spec.OnDelete == v1alpha1.DeleteOrphan) {
			return
		}
	}
	for _, driver := range driversInOrder {
		if w.served[driver] && wanted(all, driver) {
			w.driverIsWhole(driver, "repairs go on", func(id inventory.ID) bool { return id.Kind == "Secret" || id.Kind == "ConfigMap" })
		}
	}
}

// nothingButSecretsHasASecret looks for the value of every secret in all that the operator
// writes beside Secrets: inventories and other records, and what is installed.
func (w *world) nothingButSecretsHasASecret() {
	lists := []client.ObjectList{
		&corev1.ConfigMapList{}, &corev1.ServiceAccountList{}, &corev1.ServiceList{}, &appsv1.DeploymentList{}, &appsv1.DaemonSetList{},
		&rbacv1.RoleList{}, &rbacv1.ClusterRoleList{}, &storagev1.CSIDriverList{},
	}
	for _, list := range lists {
		w.must(w.List(w.ctx, list))
		w.must(meta.EachListItem(list, func(o runtime.Object) error {
			if where := has([]byte(text(o))); where != "" {
				named, _ := meta.Accessor(o) //nolint:errcheck // a list's items are objects
				w.fail("no secret is told", "%T %s/%s has one: %s", o, named.GetNamespace(), named.GetName(), where)
			}
			return nil
		}))
	}
}

// has finds a secret as it is, and in any base64.
func has(text []byte) string {
	for _, form := range canaries {
		if i := bytes.Index(text, []byte(form)); i >= 0 {
			return fmt.Sprintf("…%s", text[max(0, i-100):i+len(form)])
		}
	}
	return ""
}

// canaries are the canary, and what of its base64 is the same whatever is around it.
var canaries = func() []string {
	all := []string{canary}
	for before := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + canary))
		text = strings.TrimRight(text, "=")
		all = append(all, text[(before*4+2)/3:len(text)-1])
	}
	return all
}()

func TestASecretIsFoundWhereverItIs(t *testing.T) {
	require.Empty(t, has([]byte("none")))
	for before := range 4 {
		secret := strings.Repeat("p", before) + canary + "-1"
		for _, is := range []string{secret, base64.StdEncoding.EncodeToString([]byte("user:" + secret))} {
			require.NotEmpty(t, has([]byte(`{"data":"`+is+`"}`)), before)
		}
	}
}
