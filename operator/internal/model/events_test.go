package model

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// kinds are all events. What cannot happen as things are, such as the deletion of what
// is not there, does nothing.
var kinds []kind

func init() { // they refer to each other
	kinds = []kind{
		{name: "begin", args: []string{"with nothing installed", "with all installed", "with all installed"}, do: (*world).beginEvent},
		{name: "pass", args: []string{passDrivers, passVCenter, passBundle}, do: func(w *world, arg string) { w.play(); w.pass(arg) }},
		{name: "settle", args: []string{"all"}, do: func(w *world, _ string) { w.settle() }},
		{name: "peace", args: []string{"four intervals"}, do: func(w *world, _ string) { w.peace(false) }},
		{name: "clock", weight: 3, args: []string{"a minute", "an interval", "an hour"}, do: (*world).clockEvent},
		{name: "operator", weight: 2, args: []string{"restarts"}, do: (*world).restartEvent},
		{name: "API server", weight: 8, args: []string{"the request fails", "its answer is lost", "the operator is killed"}}, // at a request
		{name: "refusals", weight: 2, args: slices.Sorted(maps.Keys(refusals)), do: (*world).refusalsEvent},
		{name: "credentials", weight: 8, anywhere: true, do: (*world).credentialsEvent, args: []string{
			"wrong password", "no username", "deleted", "right", "right", "the vCenter changes the password", "rotated"}},
		{name: "vCenter", weight: 4, anywhere: true, args: []string{"locks the account", "fails", "is well", "is well"}, do: (*world).vcenterEvent},
		{name: "vCenter CA", weight: 3, anywhere: true, args: []string{"no PEM", "deleted", "right"}, do: (*world).authorityEvent},
		{name: "cloud config", weight: 5, anywhere: true, do: (*world).cloudConfigEvent, args: []string{
			"deleted", "right", "right", "another datacenter", "a datacenter that is not there", "suspended", "asked for now"}},
		{name: "pull secret", weight: 8, anywhere: true, do: (*world).pullSecretEvent, args: []string{
			"deleted", "wrong password", "without its key", "no JSON", "right", "right", "the mirror changes the password"}},
		{name: "trust", weight: 4, anywhere: true, args: []string{"deleted", "a stranger's key", "no key", "right"}, do: (*world).trustEvent},
		{name: "tag", weight: 6, anywhere: true, do: func(w *world, arg string) { w.retag(arg) },
			args: []string{bundleFirst, bundleRebuilt, bundleNewer, bundleUnsigned, bundleStrangers}},
		{name: "mirror", weight: 4, anywhere: true, do: (*world).mirrorEvent,
			args: append(slices.Sorted(maps.Keys(mirrorFaults)), "is well")},
		{name: "bundle", weight: 6, anywhere: true, do: (*world).bundleEvent, args: []string{
			"a second one", "no second one", "deleted", "right", "suspended", "its key is revoked", "its login is named", "asked for now"}},
		{name: "config", weight: 16, anywhere: true, do: (*world).configEvent,
			args: append(slices.Sorted(maps.Keys(configEdits)),
				"deleted", "right", "a-site beside it", "a-site deleted", "z-site beside it", "z-site deleted")},
		{name: "hand deletes", weight: 10, anywhere: true, args: slices.Sorted(maps.Keys(deletable())), do: (*world).handDeletes},
		{name: "hand edits", weight: 6, anywhere: true, args: slices.Sorted(maps.Keys(handEdits)), do: (*world).handEdits},
		{name: "node", weight: 8, anywhere: true, do: (*world).nodeEvent, args: []string{
			"w-1 is not ready", "the workers are not ready", "cp-1 is not ready", "all are ready", "all are ready", "w-1 lies", "cp-1 lies", "all lie", "nobody lies", "nobody lies",
			"w-4 joins", "w-4 leaves", "cp-2 joins", "cp-2 leaves", "forty join", "forty leave"}},
		{name: "volume", weight: 3, anywhere: true, args: []string{"made", "deleted"}, do: (*world).driversVolumeEvent},
	}
}

func kindOf(name string) kind { return first(kinds, func(k kind) bool { return k.name == name }) }

// beginEvent puts the site where a program begins.
func (w *world) beginEvent(arg string) {
	if arg != "with all installed" {
		return
	}
	w.settle()
	v := &v1alpha1.VDOConfig{ObjectMeta: named("m-site")}
	w.must(w.Get(w.ctx, client.ObjectKeyFromObject(v), v))
	if !meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionReady) {
		w.fail("a site where all is right becomes Ready", "%s\n%s", describe(v.Status.Conditions), w.bundles())
	}
	for _, r := range w.rolled {
		r.left = 0
	}
}

func (w *world) clockEvent(arg string) {
	w.now = w.now.Add(map[string]time.Duration{"a minute": time.Minute, "an interval": interval, "an hour": time.Hour + time.Minute}[arg])
}

// restartEvent has another operator go on. It knows no answer that could not be written.
func (w *world) restartEvent(string) {
	vcs := own(w, &v1alpha1.VsphereCloudConfigList{}).Items
	if slices.ContainsFunc(vcs, func(v v1alpha1.VsphereCloudConfig) bool { return v.Status.AskedWith != "" }) {
		w.deaths++
	}
	w.start()
}

// faults of the API server by the events' words.
var faults = map[string]string{"the request fails": "fails", "its answer is lost": "lost", "the operator is killed": "killed"}

// admitted are kinds about which an admission webhook of the site is asked.
var admitted = regexp.MustCompile(`/(daemonsets|deployments|serviceaccounts|clusterroles)/`)

func ofWebhook(req *http.Request) bool {
	return req.Method != http.MethodGet && admitted.MatchString(req.URL.Path)
}

// ofOthers are all writes but those of conditions, and what they are written by.
func ofOthers(req *http.Request) bool {
	return req.Method != http.MethodGet && !strings.Contains(req.URL.Path, "/vdo.vmware.com/")
}

// refusals are what an API server answers to some of the operator's requests for a while.
var refusals = map[string]struct {
	status int
	to     func(*http.Request) bool
}{
	"a webhook denies":      {http.StatusForbidden, ofWebhook},
	"a webhook is away":     {http.StatusInternalServerError, ofWebhook},
	"nothing is served":     {http.StatusServiceUnavailable, func(*http.Request) bool { return true }},
	"writes are throttled":  {http.StatusTooManyRequests, ofOthers},
	"writes fail":           {http.StatusInternalServerError, ofOthers},
	"writes conflict":       {http.StatusConflict, ofOthers},
	"writes end by timeout": {http.StatusGatewayTimeout, ofOthers},
	"conditions do not change": {http.StatusInternalServerError, func(req *http.Request) bool {
		return isWrite(req) && strings.HasSuffix(req.URL.Path, "/status")
	}},
}

// refusalsEvent does some passes while the API server refuses what the operator asks for.
func (w *world) refusalsEvent(arg string) {
	f := refusals[arg]
	w.wire.refuses(func(req *http.Request) *http.Response {
		if f.to(req) {
			return answer(req, f.status, wireFault)
		}
		return nil
	})
	for range 3 {
		w.play()
		w.pass(passes...)
		w.now = w.now.Add(30 * time.Second)
	}
	w.wire.refuses(nil)
}

// changePassword has the vCenter take another password.
func (w *world) changePassword() {
	w.site.password++
	w.inputs++ // the one that is in the Secret is refused from now on
	w.site.vc.SetPassword(vcsim.Admin.Username, w.vcPassword())
}

func (w *world) credentialsEvent(arg string) {
	w.inputs++
	switch arg {
	case "wrong password":
		w.put(w.credentials(fmt.Sprintf("wrong-%d%s", w.inputs, canary)))
	case "no username":
		s := w.credentials(w.vcPassword())
		delete(s.Data, "username")
		w.put(s)
	case "deleted":
		w.drop(w.credentials(""))
	case "the vCenter changes the password":
		w.changePassword()
	case "rotated":
		w.changePassword()
		w.put(w.credentials(w.vcPassword()))
	default:
		w.put(w.credentials(w.vcPassword()))
	}
}

func (w *world) vcenterEvent(arg string) {
	w.site.vc.Mend()
	switch arg {
	case "locks the account":
		w.site.vc.Break("Login", &types.InvalidLogin{}, "The account is temporarily locked")
	case "fails":
		w.site.vc.Break("RetrieveProperties", &types.RuntimeFault{})
		w.site.vc.Break("RetrievePropertiesEx", &types.RuntimeFault{})
	}
}

func (w *world) authorityEvent(arg string) {
	w.inputs++
	cm := w.authority()
	switch arg {
	case "no PEM":
		cm.Data["ca.crt"] = "this is not a certificate"
	case "deleted":
		w.drop(cm)
		return
	}
	w.put(cm)
}

func (w *world) cloudConfigEvent(arg string) {
	w.inputs++
	v := w.cloudConfig()
	switch arg {
	case "deleted":
		w.drop(v)
		return
	case "another datacenter":
		v.Spec.Datacenters = []string{"site/west"}
	case "a datacenter that is not there":
		v.Spec.Datacenters = []string{"site/missing"}
	case "suspended":
		v.Spec.Suspend = true
	case "asked for now":
		w.ask(v)
		return
	}
	w.put(v)
}

// ask asks for a pass by the annotation.
func (w *world) ask(o client.Object) {
	w.asked++
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"t%d"}}}`, v1alpha1.AnnotationRequestedAt, w.asked)
	w.must(client.IgnoreNotFound(w.Patch(w.ctx, o, client.RawPatch("application/merge-patch+json", patch))))
}

func (w *world) pullSecretEvent(arg string) {
	s := w.pullSecret(w.site.DockerConfig())
	switch arg {
	case "deleted":
		w.drop(s)
		return
	case "wrong password":
		s.Data[corev1.DockerConfigJsonKey] = fmt.Appendf(nil, `{"auths":{%q:{"username":"vdo","password":"wrong-1%s"}}}`, w.site.Host, canary)
	case "without its key":
		s = &corev1.Secret{ObjectMeta: s.ObjectMeta, Data: map[string][]byte{"other": []byte("x")}}
	case "no JSON":
		s = &corev1.Secret{ObjectMeta: s.ObjectMeta, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{")}}
	case "the mirror changes the password":
		w.site.Password = fmt.Sprintf("mirror-%d%s", len(w.mirrorLogins)+1, canary)
		w.mirrorLogins = append(w.mirrorLogins, w.site.Password)
		return
	}
	w.drop(s) // a Secret's type cannot be changed
	w.put(s)
}

func (w *world) trustEvent(arg string) {
	switch arg {
	case "deleted":
		w.drop(w.trustOf("release"))
	case "a stranger's key":
		w.put(w.trustOf("stranger"))
	case "no key":
		cm := w.trustOf("release")
		cm.Data = map[string]string{"release.pub": "this is not a key"}
		w.put(cm)
	default:
		w.put(w.trustOf("release"))
	}
}

// retag moves the tag of the site, past whatever the mirror does to others.
func (w *world) retag(to string) {
	_, err := w.site.Retag(repository, to, "site")
	w.must(err)
}

// mirrorFaults are what the mirror does to requests.
var mirrorFaults = map[string]registry.Fault{
	"is away":               {Match: registry.Match{Path: "/v2/"}, Reset: true},
	"refuses everybody":     {Match: registry.Match{Path: "/v2/"}, Status: http.StatusForbidden},
	"cuts answers":          {Match: registry.Match{Path: "/v2/"}, Cut: 40},
	"hands out other bytes": {Match: registry.Match{Path: "/blobs/"}, Tamper: true, TamperAt: 20},
}

func (w *world) mirrorEvent(arg string) {
	w.site.Heal()
	if fault, ok := mirrorFaults[arg]; ok {
		w.site.Fail(fault)
	}
}

func (w *world) bundleEvent(arg string) {
	b := w.driverBundle("drivers")
	switch arg {
	case "a second one":
		b = w.driverBundle("another")
		b.Spec.Reference = w.site.Host + "/" + repository + ":" + bundleFirst
	case "no second one":
		w.drop(w.driverBundle("another"))
		return
	case "deleted":
		w.drop(b)
		return
	case "suspended":
		b.Spec.Suspend = true
	case "its key is revoked":
		b.Spec.Trust = &v1alpha1.TrustPolicy{Keys: []v1alpha1.TrustKey{{ID: "release", PublicKey: w.site.keys["release"], Revoked: true}}}
	case "its login is named":
		b.Spec.PullSecret = &v1alpha1.LocalReference{Name: v1alpha1.DefaultPullSecretName}
	case "asked for now":
		w.ask(b)
		return
	}
	w.put(b)
}

// configEvent edits the VDOConfig m-site, or makes and deletes others.
func (w *world) configEvent(arg string) {
	name, _, _ := strings.Cut(arg, " ")
	switch {
	case strings.HasSuffix(arg, "beside it"):
		w.must(client.IgnoreAlreadyExists(w.Create(w.ctx, w.vdoConfig(name))))
		return
	case strings.HasSuffix(arg, "-site deleted"):
		w.drop(w.vdoConfig(name))
		return
	case arg == "deleted":
		w.drop(w.vdoConfig("m-site"))
		return
	case arg == "right":
		w.put(w.vdoConfig("m-site"))
		return
	}
	v := &v1alpha1.VDOConfig{}
	if err := w.Get(w.ctx, client.ObjectKeyFromObject(w.vdoConfig("m-site")), v); err != nil {
		w.must(client.IgnoreNotFound(err))
		return
	}
	right := w.vdoConfig("m-site").Spec
	configEdits[arg](&v.Spec, &right)
	w.orphans = w.orphans || v.Spec.OnDelete == v1alpha1.DeleteOrphan
	if err := w.Update(w.ctx, v); err != nil {
		w.note("refused", err.Error()) // at the door
	}
}

// configEdits are what is asked for otherwise in a VDOConfig, of which a right one is given.
var configEdits = map[string]func(spec, right *asked){
	"no cloud provider":           func(spec, _ *asked) { spec.CloudProvider = nil },
	"cloud provider":              func(spec, right *asked) { spec.CloudProvider = right.CloudProvider },
	"no storage":                  func(spec, _ *asked) { spec.StorageProvider = nil },
	"storage":                     func(spec, right *asked) { spec.StorageProvider = right.StorageProvider },
	"suspended":                   func(spec, _ *asked) { spec.Suspend = true },
	"resumed":                     func(spec, _ *asked) { spec.Suspend = false },
	"a pin that is not a version": func(spec, _ *asked) { spec.Drivers = pinOfCSI("..3") },
	"a pin that nothing has":      func(spec, _ *asked) { spec.Drivers = pinOfCSI("9.9.9") },
	"no pin":                      func(spec, _ *asked) { spec.Drivers = nil },
	"onDelete Remove":             func(spec, _ *asked) { spec.OnDelete = v1alpha1.DeleteRemove },
	"onDelete Refuse":             func(spec, _ *asked) { spec.OnDelete = v1alpha1.DeleteRefuse },
	"onDelete Orphan":             func(spec, _ *asked) { spec.OnDelete = v1alpha1.DeleteOrphan },
	"upgrade on w-1 first":        func(spec, _ *asked) { spec.UpgradePolicy = onFirst(30 * time.Minute) },
	"upgrade at once":             func(spec, _ *asked) { spec.UpgradePolicy = nil },
	"upgrade by hand":             func(spec, _ *asked) { spec.Upgrade = v1alpha1.UpgradeManual },
	"a bundle that is not there":  func(spec, _ *asked) { spec.Bundle = &v1alpha1.LocalReference{Name: "missing"} },
	"its bundle by name":          func(spec, _ *asked) { spec.Bundle = &v1alpha1.LocalReference{Name: "drivers"} },
	"any bundle":                  func(spec, _ *asked) { spec.Bundle = nil },
}

func pinOfCSI(version string) []v1alpha1.DriverPolicy {
	return []v1alpha1.DriverPolicy{{Driver: "csi", Version: version}}
}

// What is not of one driver, and is deleted by hand all the same.
var (
	csiOwn = object("", "Namespace", "", csiNamespace)
	record = object("", "ConfigMap", namespace, inventory.VDOConfigs.ConfigMap("m-site"))
	hash   = object("", "Secret", namespace, "vdo-config-hash")
)

// deletable are objects that someone deletes, by their names.
func deletable() map[string]inventory.ID {
	all := map[string]inventory.ID{}
	for _, id := range append(slices.Concat(slices.Collect(maps.Values(essentials))...), csiOwn, record, hash) {
		all[id.Key.String()] = id
	}
	return all
}

func (w *world) handDeletes(arg string) {
	id := deletable()[arg]
	w.touched[arg] = true
	w.lost = w.lost || id == record
	if id == hash || id == csiOwn { // all workloads may be rolled out once more
		for name, of := range deletable() {
			w.touched[name] = w.touched[name] || isWorkload(of)
		}
	}
	if o := w.read(id); o != nil {
		w.must(client.IgnoreNotFound(w.Delete(w.ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))))
		w.stopPods(id.Namespace, podPrefix(id.Kind, id.Name), nil) // as the garbage collector
	}
}

// handEdits are what someone spoils of the essential objects of drivers.
var handEdits = map[string]struct {
	driver string
	object int
	edit   func(*unstructured.Unstructured) error
}{
	"the image of the cloud provider":       {"cpi", 0, spoilImage},
	"the image of the storage controller":   {"csi", 0, spoilImage},
	"the number of storage controllers":     {"csi", 0, setField(int64(0), "spec", "replicas")},
	"the rules of the storage driver":       {"csi", 5, removeField("rules")},
	"the cloud provider's credentials":      {"cpi", 3, setField("eA==", "data", "spoiled")},
	"the labels of the snapshot-controller": {"snapshot-controller", 0, removeField("metadata", "labels")},
	"the pull secrets of the cloud provider": {"cpi", 0,
		removeField("spec", "template", "spec", "imagePullSecrets")},
}

func spoilImage(o *unstructured.Unstructured) error {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	containers[0].(map[string]any)["image"] = evil + "/miner:1" //nolint:forcetypeassert // of the API server
	return unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
}

func setField(value any, path ...string) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error { return unstructured.SetNestedField(o.Object, value, path...) }
}

func removeField(path ...string) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error {
		unstructured.RemoveNestedField(o.Object, path...)
		return nil
	}
}

func (w *world) handEdits(arg string) {
	e := handEdits[arg]
	id := essentials[e.driver][e.object]
	if o := w.read(id); o != nil && o.GetDeletionTimestamp() == nil {
		w.must(e.edit(o))
		w.touched[id.Key.String()] = true
		w.must(w.Update(w.ctx, o, client.FieldOwner("kubectl-edit")))
	}
}

func (w *world) nodeEvent(arg string) {
	for _, name := range w.names() {
		n := *w.nodes[name]
		worker := !n.controlPlane
		switch {
		case arg == "all are ready":
			n.ready = true
		case arg == "the workers are not ready" && worker, arg == name+" is not ready":
			n.ready = false
		case arg == name+" lies", arg == "all lie":
			n.lies = true
		case arg == "nobody lies":
			n.lies = false
		}
		if n != *w.nodes[name] {
			*w.nodes[name] = n
			w.bringNode(name)
		}
	}
	name, verb, _ := strings.Cut(arg, " ")
	names := []string{name}
	if name == "forty" {
		names = nil
		for i := range 40 {
			names = append(names, fmt.Sprintf("n-%02d", i))
		}
	}
	for _, name := range names {
		switch {
		case strings.HasPrefix(verb, "join") && w.nodes[name] == nil:
			w.nodes[name] = &node{controlPlane: strings.HasPrefix(name, "cp-"), ready: true}
			w.bringNode(name)
		case strings.HasPrefix(verb, "leave") && w.nodes[name] != nil:
			delete(w.nodes, name)
			w.bringNode(name)
		}
	}
}

// driversVolumeEvent has the driver make the volume, which first stores the cluster id that it made up.
func (w *world) driversVolumeEvent(arg string) {
	if arg == "made" {
		meta := metav1.ObjectMeta{Namespace: csiNamespace, Name: "vsphere-csi-cluster-id"}
		id := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"clusterID": "made-by-the-driver"}}
		err := w.Create(w.ctx, id)
		if apierrors.IsNotFound(err) {
			return // no driver ran
		}
		w.must(client.IgnoreAlreadyExists(err))
	}
	w.volumeEvent(arg)
}

func (w *world) volumeEvent(arg string) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-model"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.vsphere.vmware.com", VolumeHandle: "h"}}}}
	if arg == "made" {
		w.must(client.IgnoreAlreadyExists(w.Create(w.ctx, pv)))
		return
	}
	w.wipe(&corev1.PersistentVolume{})
}

// heal makes everything right that a person can: volumes stay.
func (w *world) heal() {
	w.note("event", "all is put right")
	w.site.vc.Mend()
	w.mirrorEvent("is well")
	w.rights()
	w.inputs++
	w.put(w.credentials(w.vcPassword()), w.authority(), w.mirrorAuthority(), w.cloudConfig(), w.trustOf("release"))
	w.ask(w.cloudConfig()) // for an account that was unlocked
	w.pullSecretEvent("right")
	w.retag(bundleNewer)
	w.drop(w.driverBundle("another"))
	w.put(w.driverBundle("drivers"))
	for _, e := range []string{"all are ready", "nobody lies", "forty leave"} {
		w.nodeEvent(e)
	}
	w.oneConfig()
}

// oneConfig leaves one VDOConfig, as it should be: the one in force, where there is one.
func (w *world) oneConfig() {
	all := slices.DeleteFunc(w.configs(), func(v v1alpha1.VDOConfig) bool { return !v.DeletionTimestamp.IsZero() })
	keep := "m-site"
	if i := slices.IndexFunc(all, func(v v1alpha1.VDOConfig) bool {
		return controllerutil.ContainsFinalizer(&v, "vdo.vmware.com/drivers")
	}); i >= 0 {
		keep = all[i].Name
	} else if len(all) > 0 {
		keep = all[0].Name
	}
	for _, v := range w.configs() {
		if v.Name != keep || !v.DeletionTimestamp.IsZero() {
			if !v.DeletionTimestamp.IsZero() { // a lost inventory is made again from the bundle first
				v.Spec = w.vdoConfig(v.Name).Spec
				v.Spec.OnDelete = v1alpha1.DeleteRemove
				w.must(w.Update(w.ctx, &v))
			}
			w.drop(&v)
			w.settle()
		}
	}
	w.put(w.vdoConfig(keep))
}
