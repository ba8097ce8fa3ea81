package vdoctl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// draft is a configuration: the objects of a file, and what they lack of the cluster.
type draft struct {
	*objects

	vcenter *v1alpha1.VsphereCloudConfig
	secret  *corev1.Secret    // nil if it does not change
	caMap   *corev1.ConfigMap // likewise

	user, password string  // of the existing Secret
	ca             []byte  // the vCenter's CA
	readers        readers // of Secrets and ConfigMaps: the file before the cluster
}

func (o *configureOptions) begin() (*draft, error) {
	d := &draft{objects: &objects{namespace: o.cluster.namespace}}
	if o.file == "" {
		return d, nil
	}
	data, err := o.read("--from-file", o.file)
	if err != nil {
		return d, err
	}
	read, err := parseSite(o.file, data, d.namespace)
	if err = fault.Join(err, read.within()); err != nil {
		return d, err
	}
	d.objects, d.readers = read, readers{read}
	return d, nil
}

// chosen reads the resources of the selected vCenter, and offers their values.
func (o *configureOptions) chosen(ctx context.Context, d *draft) error {
	if err := d.choose(ctx, o.vcenter); err != nil {
		return err
	}
	o.several = slices.ContainsFunc(render.StorageVCenters(d.config.Spec.StorageProvider),
		func(name string) bool { return name != o.vcenter })
	_, uses := preflight.WantsOf(&d.config.Spec)
	o.used = !o.given("drivers") && slices.ContainsFunc(uses, func(u preflight.Use) bool { return u.Name == o.vcenter })
	o.set("server", &o.server, d.vcenter.Spec.VcIP)
	return nil
}

// readResources reads the resources of the namespace: those to change, and defaults for kinds that the file lacks.
func (d *draft) readResources(ctx context.Context, c client.Client) error {
	has, err := readResources(ctx, c, d.namespace)
	if err != nil {
		return err
	}
	if !has.known {
		return fault.Errorf(fault.NotFound, "configure", "the cluster",
			"install the operator first, by `vdoctl deploy`, or write a file: -o site.yaml",
			"the operator's resources are not known to it")
	}
	config, err := theConfig(ctx, c, d.namespace)
	switch {
	case errors.Is(err, errNoConfig):
	case err != nil:
		return err
	case d.config == nil:
		d.config = config
	case d.config.Name != config.Name:
		return fault.Errorf(fault.Conflict, "configure", describeObject(d.config), "give it that name in the file",
			"the cluster has another one, %s, and the operator takes no second", config.Name)
	}
	// Use existing resources of kinds that the file lacks.
	if len(d.vcenters) == 0 {
		for _, v := range ofType[*v1alpha1.VsphereCloudConfig](has.rest) {
			d.vcenters = append(d.vcenters, *v)
		}
	}
	for _, b := range ofType[*v1alpha1.DriverBundle](has.rest) {
		named := d.config == nil || d.config.Spec.Bundle == nil || d.config.Spec.Bundle.Name == b.Name
		if d.bundle == nil && named {
			d.bundle = b
		}
	}
	return nil
}

func (d *draft) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: d.namespace, Name: name}
}

func (d *draft) makeMissing() {
	if d.config == nil {
		d.config = &v1alpha1.VDOConfig{ObjectMeta: d.meta("vdo")}
	}
	if d.bundle == nil {
		named := ptr.Deref(d.config.Spec.Bundle, v1alpha1.LocalReference{}).Name
		d.bundle = &v1alpha1.DriverBundle{ObjectMeta: d.meta(cmp.Or(named, "drivers"))}
	}
}

// nameBundle lets the VDOConfig name its bundle, unless that has the usual name.
func (d *draft) nameBundle() {
	if d.config.Spec.Bundle != nil || d.bundle.Name != "drivers" {
		d.config.Spec.Bundle = &v1alpha1.LocalReference{Name: d.bundle.Name}
	}
}

func (d *draft) choose(ctx context.Context, name string) error {
	for i := range d.vcenters {
		if d.vcenters[i].Name == name {
			d.vcenter = &d.vcenters[i]
		}
	}
	if d.vcenter == nil {
		d.vcenters = append(d.vcenters, v1alpha1.VsphereCloudConfig{ObjectMeta: d.meta(name)})
		d.vcenter = &d.vcenters[len(d.vcenters)-1]
		return nil
	}
	read, err := credentials.Read(ctx, d.readers, d.vcenter)
	if err != nil && !isMissing(err) {
		return new(site).inFile(configured{}, err)
	}
	d.user, d.password, d.ca = read.Username, read.Password, read.CA
	return nil
}

// set uses an existing value for an answer that no flag gives.
func (o *configureOptions) set(flag string, to *string, value string) {
	if value != "" && !o.given(flag) {
		*to = value
	}
}

func (o *configureOptions) offer(d *draft) {
	o.set("bundle", &o.bundle, d.bundle.Spec.Reference)
	o.set("upgrade", &o.upgrade, string(d.config.Spec.Upgrade))
	isKnown := d.config.ResourceVersion != "" || !d.isOfCluster(describeObject(d.config))
	o.mode = isKnown && d.config.Spec.Upgrade == "" && !o.given("upgrade")
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
	}
}

// offerVCenter offers the values of the vCenter at the chosen address.
func (o *configureOptions) offerVCenter(d *draft) {
	v := &d.vcenter.Spec
	if v.VcIP != "" && o.server != v.VcIP {
		d.user, d.password = "", "" // they are of the earlier vCenter, as are port and thumbprint
		if !o.given("thumbprint") {
			o.thumbprint = ""
		}
	} else {
		if v.Port > 0 {
			o.set("port", &o.port, strconv.Itoa(int(v.Port)))
		}
		if o.caFile == "" {
			o.set("thumbprint", &o.thumbprint, v.Thumbprint)
		}
	}
	o.set("username", &o.username, d.user)
	o.set("datacenters", &o.datacenters, strings.Join(v.DatacenterNames(), ","))
}

func (d *draft) topology() *v1alpha1.Topology {
	if c := d.config.Spec.CloudProvider; c != nil && c.Topology != nil {
		return c.Topology
	}
	if s := d.config.Spec.StorageProvider; s != nil && len(s.TopologyCategories) == 2 {
		return &v1alpha1.Topology{Region: s.TopologyCategories[0], Zone: s.TopologyCategories[1]}
	}
	return nil
}

// take writes the answers into the resources. Other fields do not change.
func (o *configureOptions) take(d *draft) error {
	if err := o.takeVCenter(d); err != nil {
		return err
	}
	d.bundle.Spec.Reference = o.bundle
	secret := d.account(d.vcenter.Spec.Credentials)
	isNew := o.username != d.user || o.password != d.password
	if o.username != "" && (isNew || !d.isOfCluster(describeObject(secret))) {
		d.secret = secret
		d.secret.Data[corev1.BasicAuthUsernameKey], d.secret.Data[corev1.BasicAuthPasswordKey] = []byte(o.username), []byte(o.password)
	}
	o.takeDrivers(d)
	if !o.mode || o.upgrade == string(v1alpha1.UpgradeManual) {
		d.config.Spec.Upgrade = v1alpha1.UpgradeMode(o.upgrade)
	}
	return nil
}

func (o *configureOptions) takeVCenter(d *draft) error {
	v := &d.vcenter.Spec
	made, err := accountsOf(o.write)
	if err != nil {
		return err
	}
	has := len(made.made.all) > 0 || len(d.account(v.Credentials).Data) > 0
	if has && o.username == "" && v.VcIP != "" && v.VcIP != o.server {
		other := fmt.Errorf("the account that is there is of %s, and %s would get its password", v.VcIP, o.server)
		return flags.Bad("--username", "", other, "give the account of that vCenter, or add it: --vcenter NAME")
	}
	if v.VcIP != "" && v.VcIP != o.server {
		v.Insecure, v.Thumbprint = false, "" // they applied to the earlier vCenter
	}
	port, _ := strconv.ParseInt(o.port, 10, 32) // it was checked
	v.VcIP, v.Port, v.Datacenters = o.server, int32(port), splitList(o.datacenters)
	v.Credentials = cmp.Or(v.Credentials, o.vcenter+"-account")
	return o.takeCertificate(d)
}

// isOfCluster reports whether a changed object is the cluster's: the file does not have it.
func (d *draft) isOfCluster(name string) bool { return d.all[name] == nil }

// account returns the Secret of an account, with its other keys.
func (d *draft) account(name string) *corev1.Secret {
	out := &corev1.Secret{ObjectMeta: d.meta(name), Type: corev1.SecretTypeBasicAuth, Data: map[string][]byte{}}
	for _, from := range slices.Backward(d.readers) {
		var has corev1.Secret
		if from.Get(context.Background(), client.ObjectKeyFromObject(out), &has) == nil { // unreadable keys stay
			out.Type, out.ResourceVersion = has.Type, has.ResourceVersion
			maps.Copy(out.Data, has.Data)
		}
	}
	return out
}

// authorityMap returns the ConfigMap of the vCenter's CA, with the other keys of the one in the file.
func (d *draft) authorityMap(name string) *corev1.ConfigMap {
	out := &corev1.ConfigMap{ObjectMeta: d.meta(name)}
	_ = d.Get(context.Background(), client.ObjectKeyFromObject(out), out) // otherwise it is created
	if out.Data == nil {
		out.Data = map[string]string{}
	}
	out.Data[v1alpha1.DefaultCAKey] = string(d.ca)
	delete(out.BinaryData, v1alpha1.DefaultCAKey) // only one of them has the key
	return out
}

func (o *configureOptions) takeCertificate(d *draft) (err error) {
	v := &d.vcenter.Spec
	switch {
	case o.caFile != "":
		if d.ca, err = o.readAuthority(o.caFile); err != nil {
			return err
		}
		v.CA = &v1alpha1.KeyReference{ConfigMap: o.vcenter + "-ca"}
		v.Thumbprint, d.caMap = "", d.authorityMap(v.CA.ConfigMap)
	case o.thumbprint != v.Thumbprint || o.given("thumbprint"):
		v.Thumbprint, v.CA, d.ca = o.thumbprint, nil, nil
	default:
		return nil
	}
	v.Insecure = false // without a thumbprint it would accept any certificate
	return nil
}

func (o *configureOptions) takeDrivers(d *draft) {
	spec := &d.config.Spec
	d.nameBundle()
	var topology *v1alpha1.Topology
	var categories []string
	if o.region != "" && o.zone != "" {
		topology, categories = &v1alpha1.Topology{Region: o.region, Zone: o.zone}, []string{o.region, o.zone}
	}
	tags := o.tags || !ptr.Equal(d.topology(), topology) // one driver may have none, and stays so
	if o.drivers == csiAlone {
		spec.CloudProvider = nil
	} else {
		o.takeCloud(spec, topology, tags)
	}
	if o.drivers == cpiAlone {
		spec.StorageProvider = nil
	} else {
		o.takeStorage(spec, categories, tags)
	}
}

func (a *answers) takeCloud(spec *v1alpha1.VDOConfigSpec, topology *v1alpha1.Topology, tags bool) {
	if spec.CloudProvider == nil {
		spec.CloudProvider, tags = &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{a.vcenter}}, true
	}
	c := spec.CloudProvider
	if !a.used && !slices.Contains(c.VsphereCloudConfigs, a.vcenter) {
		c.VsphereCloudConfigs = append(c.VsphereCloudConfigs, a.vcenter)
	}
	if tags {
		c.Topology = topology
	}
}

func (a *answers) takeStorage(spec *v1alpha1.VDOConfigSpec, categories []string, tags bool) {
	if spec.StorageProvider == nil {
		spec.StorageProvider, tags = &v1alpha1.StorageProvider{VsphereCloudConfig: a.vcenter}, true
	}
	s := spec.StorageProvider
	if !a.used && s.VsphereCloudConfig != a.vcenter && !slices.Contains(s.VsphereCloudConfigs, a.vcenter) {
		s.VsphereCloudConfigs = append(s.VsphereCloudConfigs, a.vcenter)
	}
	if tags && (len(categories) > 0 || len(s.TopologyCategories) == 2) {
		s.TopologyCategories = categories
	}
}

// own returns the operator's resources in the order of writing: all of a file, but only the selected vCenter of a
// cluster.
func (d *draft) own() (out []client.Object) {
	for i := range d.vcenters {
		if v := &d.vcenters[i]; len(d.all) > 0 || v == d.vcenter {
			out = append(out, v)
		}
	}
	return append(out, d.bundle, d.config)
}

// manifests returns all resources in the order of writing. The Secrets and ConfigMaps that vCenters and the bundle of
// a file name come before the operator's own.
func (d *draft) manifests(ctx context.Context) ([]client.Object, error) {
	var out []client.Object
	if d.secret != nil {
		out = append(out, d.secret)
	}
	if d.caMap != nil {
		out = append(out, d.caMap)
	}
	named := referenced(d.namespace, referencesOf(append(pointers(d.vcenters), d.bundle))...)
	found, err := present(ctx, d, named)
	if err != nil {
		return nil, err
	}
	made := described(out)
	out = append(out, slices.DeleteFunc(found, func(x client.Object) bool {
		return slices.Contains(made, describeObject(x))
	})...)
	out = append(out, d.own()...)
	all, err := manifests(out...)
	for i, u := range all {
		if read := out[i]; read.GetResourceVersion() != "" { // not of a file: its version is stale
			u.SetUID(read.GetUID())
			u.SetGeneration(read.GetGeneration())
			u.SetResourceVersion(read.GetResourceVersion())
		}
		out[i] = u
	}
	return out, err
}

// writeFile writes the resources as YAML, and names the objects that have to exist besides. It replaces an existing
// file only with consent.
func (o *configureOptions) writeFile(ctx context.Context, d *draft) error {
	out, err := d.document(ctx, o.replaced)
	if err != nil {
		return err
	}
	if o.write == "-" {
		_, err = o.out.Write(out)
	} else {
		err = o.replace(ctx, out)
	}
	if err != nil {
		return err
	}
	l := &lines{w: o.err}
	if o.write != "-" {
		l.printf("Written: %s", o.write)
	}
	l.printf("If the operator is not installed yet, run `vdoctl deploy` before `kubectl apply`.")
	l.printf("The account goes to the Secret %s in namespace %s. Its type is %s, its keys username and password.",
		d.vcenter.Spec.Credentials, d.namespace, corev1.SecretTypeBasicAuth)
	return l.err
}

// replace writes the file, unless it has changed since it was read.
func (o *configureOptions) replace(ctx context.Context, out []byte) error {
	if o.replaced != nil && !bytes.Equal(o.replaced, out) {
		if err := o.consent(ctx, o.consentFlags, "Replace the file "+o.write+"?"); err != nil {
			return err
		}
	}
	if now, _ := os.ReadFile(o.write); !bytes.Equal(now, o.replaced) {
		return changedMeanwhile(o.write, errors.New("it was made, changed or removed while configure ran"))
	}
	return userfile.Write(o.write, out, 0o644)
}

// document returns the resources as YAML, without Secrets, together with the other content of the file that they
// replace.
func (d *draft) document(ctx context.Context, was []byte) ([]byte, error) {
	own, err := d.manifests(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := readManifest(was)
	if err != nil {
		return nil, err
	}
	own = slices.DeleteFunc(own, func(u client.Object) bool { return kindOf(u) == "Secret" })
	done := described(own)
	for _, u := range kept {
		named := copyOf(u)
		named.SetNamespace(cmp.Or(u.GetNamespace(), d.namespace))
		if !slices.Contains(done, describeObject(named)) {
			own = append(own, u)
		}
	}
	return documentOf(ofType[*unstructured.Unstructured](own))
}

func documentOf(objects []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for _, u := range objects {
		data, err := yaml.Marshal(u.Object)
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(&out, "---\n%s", data) // a buffer never fails
	}
	return out.Bytes(), nil
}

// replaces returns the file to replace; nil if none exists. It refuses a name that cannot be written, and a file that
// is no site's configuration, such as a key or a bundle.
func (o *configureOptions) replaces() ([]byte, error) {
	if o.write == "" || o.write == "-" {
		return nil, nil
	}
	to, err := userfile.Behind(o.write)
	if err == nil {
		_, err = os.Stat(filepath.Dir(to))
	}
	if err != nil {
		return nil, atomicfile.Fault("write", o.write, err)
	}
	info, err := os.Stat(o.write)
	if err != nil {
		return nil, nil //nolint:nilerr // it is new
	}
	if !info.Mode().IsRegular() {
		return nil, fault.Errorf(fault.Refused, "write", o.write, "name another file, or - for standard output",
			"it is no regular file")
	}
	has, err := o.read("-o", o.write)
	if err == nil && len(bytes.TrimSpace(has)) > 0 {
		_, err = parseSite(o.write, has, o.cluster.namespace)
	}
	return has, err
}
