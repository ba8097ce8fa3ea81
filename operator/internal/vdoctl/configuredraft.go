package vdoctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

var errNoKinds = errors.New("the operator's resources are not known to it")

// draft is the configuration while it is changed: what was there, and what shall be.
type draft struct {
	namespace string
	bundle    *v1alpha1.DriverBundle
	vcenters  []v1alpha1.VsphereCloudConfig
	vcenter   *v1alpha1.VsphereCloudConfig
	config    *v1alpha1.VDOConfig
	secret    *corev1.Secret
	caMap     *corev1.ConfigMap // nil where it stays as it is

	user, password string                   // of the Secret that is there
	passwordAt     []string                 // the vCenters that the cluster has this password for; none where it does not say
	ca             []byte                   // the vCenter's authority
	file           *objects                 // what it was begun with; nil for the cluster
	readers        []client.Reader          // of Secrets and ConfigMaps: the file before the cluster
	before         map[string]client.Object // by describeObject; what was there
	after          map[string]client.Object // what the API server would make of it, with its defaults
	lenient        bool                     // a file is written, which needs no Secret
	read           map[string]bool          // of Secrets and ConfigMaps: whether they are there is known
}

// draft reads the file to begin with, if there is one.
func (o *configureOptions) draft() (*draft, error) {
	d := &draft{namespace: o.cluster.namespace, before: map[string]client.Object{}, after: map[string]client.Object{}, read: map[string]bool{}, lenient: o.write != ""}
	if o.file == "" {
		return d, nil
	}
	data, err := o.there, error(nil)
	if o.given("from-file") {
		data, err = o.read("--from-file", o.file)
	}
	if err != nil {
		return d, err
	}
	read, err := parseSite(o.file, data, d.namespace)
	if err = fault.Join(err, read.within(d.namespace)); err != nil {
		return d, err
	}
	read.moveTo(d.namespace)
	d.config, d.vcenters, d.bundle, d.file = read.config, read.vcenters, read.bundle, read
	d.readers = append(d.readers, read)
	return d, nil
}

// chosen reads what belongs to the vCenter that is meant, and offers it.
func (o *configureOptions) chosen(ctx context.Context, c client.Client, d *draft) error {
	if err := d.choose(ctx, o.vcenter); err != nil {
		return err
	}
	if c != nil {
		if err := d.readOwn(ctx, c); err != nil {
			return err
		}
	}
	others := slices.DeleteFunc(render.StorageVCenters(d.config.Spec.StorageProvider), func(name string) bool { return name == o.vcenter })
	if o.several = len(others) > 0; !slices.ContainsFunc(others, d.hasVCenter) {
		o.absent = others
	}
	_, uses := preflight.WantsOf(&d.config.Spec)
	o.used = !o.given("drivers") && slices.ContainsFunc(uses, func(u preflight.Use) bool { return u.Name == o.vcenter })
	o.offerVCenter(d)
	return nil
}

// hasVCenter tells whether there is a VsphereCloudConfig of this name.
func (d *draft) hasVCenter(name string) bool {
	_, there := d.before[describeObject(&v1alpha1.VsphereCloudConfig{ObjectMeta: d.meta(name)})]
	return there || slices.ContainsFunc(d.vcenters, func(v v1alpha1.VsphereCloudConfig) bool { return v.Name == name })
}

// readOwn reads the vCenter's Secret and CA, as they are before anything is asked.
func (d *draft) readOwn(ctx context.Context, c client.Client) error {
	own := []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: d.vcenter.Name + "-ca"}}}
	name := cmp.Or(d.vcenter.Spec.Credentials, d.vcenter.Name+"-account")
	own = append(own, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: name}})
	for _, x := range own {
		if err := d.readLate(ctx, c, x); err != nil && !apierrors.IsForbidden(err) {
			return clusterFault("read "+describeObject(x), err) // who may not read it is told when it is written
		}
	}
	return nil
}

// readCluster reads the resources of the namespace: what is changed, and what to begin with where
// the file has none of a kind.
func (d *draft) readCluster(ctx context.Context, c client.Client) error {
	r, err := readResources(ctx, c)
	if err != nil {
		return err
	}
	if !r.kinds {
		return &fault.Error{Reason: fault.NotFound, Op: "configure", Subject: "the cluster", Err: errNoKinds, Hint: "install the operator first, by `vdoctl deploy`, or write a file: --write site.yaml"}
	}
	r = r.in(d.namespace)
	if len(r.configs) > 0 && d.config != nil && !slices.ContainsFunc(r.configs, func(v v1alpha1.VDOConfig) bool { return v.Name == d.config.Name }) {
		return &fault.Error{Reason: fault.Conflict, Op: "configure", Subject: describeObject(d.config),
			Err: fmt.Errorf("the cluster has another one, %s, and the operator takes no second", r.configs[0].Name), Hint: "give it that name in the file"}
	}
	for _, x := range slices.Concat(pointers(r.configs), pointers(r.vcenters), pointers(r.bundles)) {
		d.before[describeObject(x)] = x
	}
	d.beginWith(r)
	return nil
}

// beginWith takes copies of the resources that are there, of kinds that the file has none of.
func (d *draft) beginWith(r resources) {
	if d.config == nil && len(r.configs) > 0 {
		d.config = bare(r.configs[0].DeepCopy())
	}
	if len(d.vcenters) == 0 {
		for i := range r.vcenters {
			d.vcenters = append(d.vcenters, *bare(r.vcenters[i].DeepCopy()))
		}
	}
	for i := range r.bundles {
		if d.bundle != nil {
			return
		}
		if d.config == nil || d.config.Spec.Bundle == nil || d.config.Spec.Bundle.Name == r.bundles[i].Name {
			d.bundle = bare(r.bundles[i].DeepCopy())
			return
		}
	}
}

// bare is a copy of what is in the cluster without labels and annotations, which stay there: others
// have set them there, and they belong in no file.
func bare[T client.Object](x T) T {
	x.SetLabels(nil)
	x.SetAnnotations(nil)
	return x
}

func (d *draft) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: d.namespace, Name: name}
}

// makeMissing makes what is not there.
func (d *draft) makeMissing() {
	if d.config == nil {
		d.config = &v1alpha1.VDOConfig{ObjectMeta: d.meta("vdo")}
	}
	if d.bundle == nil {
		d.bundle = &v1alpha1.DriverBundle{ObjectMeta: d.meta("drivers")}
	}
}

// choose takes the vCenter that is meant, with its account, or makes it.
func (d *draft) choose(ctx context.Context, name string) error {
	for i := range d.vcenters {
		if d.vcenters[i].Name == name {
			d.vcenter = &d.vcenters[i]
		}
	}
	if d.vcenter == nil {
		d.vcenter = &v1alpha1.VsphereCloudConfig{ObjectMeta: d.meta(name)}
		return nil
	}
	for _, from := range d.readers {
		if d.user != "" && (d.ca != nil || d.vcenter.Spec.CA == nil) {
			break
		}
		read, err := credentials.Read(ctx, from, d.vcenter)
		if unread := d.lenient && fault.ReasonOf(err) == fault.Forbidden; err != nil && !unread && !isMissing(err) {
			return err
		}
		if d.user == "" {
			d.user, d.password, d.passwordAt = read.Username, read.Password, nil
			if from != client.Reader(d.file) {
				d.passwordAt = d.users(d.vcenter.Spec.Credentials)
			}
		}
		if d.ca == nil {
			d.ca = read.CA
		}
	}
	return nil
}

// set takes what is there for an answer that no flag gives.
func (o *configureOptions) set(flag string, to *string, value string) {
	if value != "" && !o.given(flag) {
		*to, o.kept[flag] = value, true
	}
}

// offer takes what is there of the bundle and the drivers.
func (o *configureOptions) offer(d *draft) {
	o.set("bundle", &o.bundle, d.bundle.Spec.Reference)
	o.set("upgrade", &o.upgrade, string(d.config.Spec.Upgrade))
	o.tags = o.given("region-category") || o.given("zone-category")
	if t := d.topology(); t != nil {
		o.set("region-category", &o.region, t.Region)
		o.set("zone-category", &o.zone, t.Zone)
	}
	cloud, storage := len(render.CloudVCenters(d.config.Spec.CloudProvider)) > 0, d.config.Spec.StorageProvider != nil
	switch {
	case cloud && !storage:
		o.set("drivers", &o.drivers, cpiAlone)
	case storage && !cloud:
		o.set("drivers", &o.drivers, csiAlone)
	case storage:
		o.set("drivers", &o.drivers, bothDrivers)
	}
}

// offerVCenter takes what is there of the vCenter.
func (o *configureOptions) offerVCenter(d *draft) {
	v := &d.vcenter.Spec
	o.set("server", &o.server, v.VcIP)
	if v.Port > 0 {
		o.set("port", &o.port, strconv.Itoa(int(v.Port)))
	}
	o.set("thumbprint", &o.thumbprint, v.Thumbprint)
	o.set("username", &o.username, d.user)
	o.set("datacenters", &o.datacenters, strings.Join(v.DatacenterNames(), ","))
	o.offerCertificate(v)
}

func (o *configureOptions) offerCertificate(v *v1alpha1.VsphereCloudConfigSpec) {
	o.checks = o.given("certificate")
	switch {
	case o.given("thumbprint") || !o.given("vcenter-ca-file") && v.Thumbprint != "":
		o.set("certificate", &o.certificate, byThumbprint)
	case o.given("vcenter-ca-file"):
		o.set("certificate", &o.certificate, byCA)
	case v.CA != nil:
		o.set("certificate", &o.certificate, byCA)
		o.set("vcenter-ca-file", &o.caFile, keptCA)
	}
}

// topology is what the configuration says of tags.
func (d *draft) topology() *v1alpha1.Topology {
	if c := d.config.Spec.CloudProvider; c != nil && c.Topology != nil {
		return c.Topology
	}
	if s := d.config.Spec.StorageProvider; s != nil && len(s.TopologyCategories) == 2 {
		return &v1alpha1.Topology{Region: s.TopologyCategories[0], Zone: s.TopologyCategories[1]}
	}
	return nil
}

// take puts the answers into the resources. What is not asked for stays as it is.
func (d *draft) take(a *answers) error {
	port, err := strconv.ParseInt(a.port, 10, 32)
	if err != nil {
		return err
	}
	d.bundle.Spec.Reference = a.bundle
	v := &d.vcenter.Spec
	d.vcenter.Name = a.vcenter
	v.VcIP, v.Port, v.Datacenters = a.server, int32(port), splitList(a.datacenters)
	if v.Credentials == "" {
		v.Credentials = a.vcenter + "-account"
	}
	d.takeCertificate(a)
	d.secret = nil
	if a.username != d.user || a.password != d.password || d.file.secret(d.namespace, v.Credentials) != nil {
		d.secret = d.account(v.Credentials)
		d.secret.Data[corev1.BasicAuthUsernameKey], d.secret.Data[corev1.BasicAuthPasswordKey] = []byte(a.username), []byte(a.password)
	}
	d.takeDrivers(a)
	d.config.Spec.Upgrade = v1alpha1.UpgradeMode(a.upgrade)
	return nil
}

// account is the Secret of an account, with the keys that it has besides.
func (d *draft) account(name string) *corev1.Secret {
	out := &corev1.Secret{ObjectMeta: d.meta(name), Type: corev1.SecretTypeBasicAuth, Data: map[string][]byte{}}
	if there, ok := d.before[describeObject(out)].(*corev1.Secret); ok {
		maps.Copy(out.Data, there.Data)
	}
	if own := d.file.secret(d.namespace, name); own != nil {
		maps.Copy(out.Data, own.Data)
	}
	return out
}

func (d *draft) takeDrivers(a *answers) {
	spec := &d.config.Spec
	if spec.Bundle != nil || len(d.before) > 0 && d.bundle.Name != "drivers" {
		spec.Bundle = &v1alpha1.LocalReference{Name: d.bundle.Name}
	}
	var topology *v1alpha1.Topology
	var categories []string
	if a.region != "" && a.zone != "" {
		topology, categories = &v1alpha1.Topology{Region: a.region, Zone: a.zone}, []string{a.region, a.zone}
	}
	a.tags = a.tags || !ptr.Equal(d.topology(), topology) // one driver may have none, and keep it so
	takeCloud(spec, a, topology)
	takeStorage(spec, a, categories)
}

func takeCloud(spec *v1alpha1.VDOConfigSpec, a *answers, topology *v1alpha1.Topology) {
	if a.drivers == csiAlone {
		spec.CloudProvider = nil
		return
	}
	made := spec.CloudProvider == nil
	if made {
		spec.CloudProvider = &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{a.vcenter}}
	}
	if !a.used && !slices.Contains(spec.CloudProvider.VsphereCloudConfigs, a.vcenter) {
		spec.CloudProvider.VsphereCloudConfigs = append(spec.CloudProvider.VsphereCloudConfigs, a.vcenter)
	}
	if made || a.tags {
		spec.CloudProvider.Topology = topology
	}
}

func takeStorage(spec *v1alpha1.VDOConfigSpec, a *answers, categories []string) {
	if a.drivers == cpiAlone {
		spec.StorageProvider = nil
		return
	}
	made := spec.StorageProvider == nil
	if made {
		spec.StorageProvider = &v1alpha1.StorageProvider{VsphereCloudConfig: a.vcenter}
	}
	s := spec.StorageProvider
	if !a.used && s.VsphereCloudConfig != a.vcenter && !slices.Contains(s.VsphereCloudConfigs, a.vcenter) {
		s.VsphereCloudConfigs = append(s.VsphereCloudConfigs, a.vcenter)
	}
	if (made || a.tags) && !slices.Equal(s.TopologyCategories, categories) && (len(categories) > 0 || len(s.TopologyCategories) == 2) {
		s.TopologyCategories = categories
	}
}

func (d *draft) takeCertificate(a *answers) {
	v := &d.vcenter.Spec
	d.caMap = nil
	switch a.certificate {
	case byThumbprint:
		v.Thumbprint, v.CA, v.Insecure = a.thumbprint, nil, false
	case byCA:
		v.Thumbprint, v.Insecure = "", false
		if a.caFile != keptCA {
			v.CA = &v1alpha1.KeyReference{ConfigMap: a.vcenter + "-ca"}
			d.caMap = d.authority(a.vcenter + "-ca")
		}
	default:
		if a.checks || v.Thumbprint != "" || v.CA != nil {
			v.Insecure = false // without a thumbprint it would accept any certificate
		}
		v.Thumbprint, v.CA = "", nil
	}
}
