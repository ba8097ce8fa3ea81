package vdoctl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
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

// draft is a configuration: the objects of a file with what changes, and what they lack of the cluster.
type draft struct {
	*objects

	vcenter        *v1alpha1.VsphereCloudConfig // the selected one
	user, password string                       // of its existing Secret
	ca             []byte                       // its CA
	readers        readers                      // of Secrets and ConfigMaps: the file before the cluster
}

func (o *configureOptions) begin() (*draft, error) {
	d := &draft{vcenter: &v1alpha1.VsphereCloudConfig{}}
	d.objects = &objects{namespace: o.cluster.namespace, all: map[string]client.Object{}}
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

// chosen reads the resources of the selected vCenter, and the state of the existing configuration.
func (o *configureOptions) chosen(ctx context.Context, d *draft) error {
	isNamed := func(v v1alpha1.VsphereCloudConfig) bool { return v.Name == o.vcenter }
	if len(d.vcenters) > 0 && o.server == "" && !o.prompts && !slices.ContainsFunc(d.vcenters, isNamed) {
		none := errors.New("no vCenter has this name; the first one is " + d.vcenters[0].Name)
		return flags.Bad("--vcenter", o.vcenter, none, "correct it, or add a vCenter with --server")
	}
	if err := d.choose(ctx, o.vcenter); err != nil {
		return err
	}
	isThis := func(u preflight.Use) bool { return u.Name == o.vcenter }
	_, uses := preflight.WantsOf(&d.config.Spec)
	o.used = !o.given("drivers") && slices.ContainsFunc(uses, isThis)
	o.several = len(without(render.StorageVCenters(d.config.Spec.StorageProvider), []string{o.vcenter})) > 0
	isKnown := d.config.ResourceVersion != "" || d.all[describeObject(d.config)] != nil
	o.mode = isKnown && d.config.Spec.Upgrade == "" && !o.given("upgrade")
	o.tags = o.given("region-category") || o.given("zone-category")
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
	i := slices.IndexFunc(d.vcenters, func(v v1alpha1.VsphereCloudConfig) bool { return v.Name == name })
	if i < 0 {
		d.vcenters = append(d.vcenters, v1alpha1.VsphereCloudConfig{ObjectMeta: d.meta(name)})
		d.vcenter = &d.vcenters[len(d.vcenters)-1]
		return nil
	}
	d.vcenter = &d.vcenters[i]
	read, err := credentials.Read(ctx, d.readers, d.vcenter)
	if err != nil && !isMissing(err) {
		return new(site).inFile(configured{}, err)
	}
	d.user, d.password, d.ca = read.Username, read.Password, read.CA
	return nil
}

// offer uses existing values for answers that no flag gives.
func (o *configureOptions) offer(d *draft, answers []field) {
	v, t := &d.vcenter.Spec, ptr.Deref(d.topology(), v1alpha1.Topology{})
	has := map[string]string{
		"bundle": d.bundle.Spec.Reference, "drivers": d.drivers(), "upgrade": string(d.config.Spec.Upgrade),
		"region-category": t.Region, "zone-category": t.Zone,
		"server": v.VcIP, "datacenters": strings.Join(v.DatacenterNames(), ","),
	}
	if len(d.vcenters) > 0 {
		has["vcenter"] = d.vcenters[0].Name
	}
	if o.server == v.VcIP { // it is the same vCenter
		has["port"], has["username"] = strconv.Itoa(int(cmp.Or(v.Port, 443))), d.user
		if o.caFile == "" {
			has["thumbprint"] = v.Thumbprint
		}
	}
	for _, f := range answers {
		if value := has[f.flag]; value != "" && !o.given(f.flag) {
			*f.to = value
		}
	}
}

// moved forgets account and thumbprint if they are of a vCenter at an earlier address.
func (o *configureOptions) moved(d *draft) {
	if was := d.vcenter.Spec.VcIP; was == "" || was == o.server {
		return
	}
	if d.user, d.password = "", ""; !o.given("thumbprint") {
		o.thumbprint = ""
	}
}

// drivers returns the one that is configured; "" for both or none.
func (d *draft) drivers() string {
	cloud, storage := len(render.CloudVCenters(d.config.Spec.CloudProvider)) > 0, d.config.Spec.StorageProvider != nil
	switch {
	case cloud && !storage:
		return cpiAlone
	case storage && !cloud:
		return csiAlone
	}
	return ""
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
	if o.username != "" && (o.username != d.user || o.password != d.password) {
		secret.Data[corev1.BasicAuthUsernameKey] = []byte(o.username)
		secret.Data[corev1.BasicAuthPasswordKey] = []byte(o.password)
		d.put(secret)
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

// account returns the Secret of an account, with its other keys.
func (d *draft) account(name string) *corev1.Secret {
	out := &corev1.Secret{ObjectMeta: d.meta(name), Type: corev1.SecretTypeBasicAuth}
	_ = d.readers.Get(context.Background(), client.ObjectKeyFromObject(out), out) // unreadable keys stay
	if out.Data == nil {
		out.Data = map[string][]byte{}
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
		v.Thumbprint = ""
		d.put(d.authorityMap(v.CA.ConfigMap))
	case o.thumbprint != v.Thumbprint || o.given("thumbprint"):
		v.Thumbprint, v.CA, d.ca = o.thumbprint, nil, nil
	default:
		return nil
	}
	v.Insecure = false // without a thumbprint it would accept any certificate
	return nil
}

func (o *configureOptions) takeDrivers(d *draft) {
	d.nameBundle()
	var topology *v1alpha1.Topology
	var categories []string
	if o.region != "" && o.zone != "" {
		topology, categories = &v1alpha1.Topology{Region: o.region, Zone: o.zone}, []string{o.region, o.zone}
	}
	tags := o.tags || !ptr.Equal(d.topology(), topology) // one driver may have none, and stays so
	lacks := func(all []string) bool { return !o.used && !slices.Contains(all, o.vcenter) }
	switch c := d.config.Spec.CloudProvider; {
	case o.drivers == csiAlone:
		d.config.Spec.CloudProvider = nil
	case c == nil:
		c = &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{o.vcenter}, Topology: topology}
		d.config.Spec.CloudProvider = c
	default:
		if lacks(c.VsphereCloudConfigs) {
			c.VsphereCloudConfigs = append(c.VsphereCloudConfigs, o.vcenter)
		}
		if tags {
			c.Topology = topology
		}
	}
	switch s := d.config.Spec.StorageProvider; {
	case o.drivers == cpiAlone:
		d.config.Spec.StorageProvider = nil
	case s == nil:
		s = &v1alpha1.StorageProvider{VsphereCloudConfig: o.vcenter, TopologyCategories: categories}
		d.config.Spec.StorageProvider = s
	default:
		if lacks(render.StorageVCenters(s)) {
			s.VsphereCloudConfigs = append(s.VsphereCloudConfigs, o.vcenter)
		}
		if tags && (len(categories) > 0 || len(s.TopologyCategories) == 2) {
			s.TopologyCategories = categories
		}
	}
}

// manifests returns all resources in the order of writing. The Secrets and ConfigMaps that vCenters and the bundle of
// a file name come before the operator's own.
func (d *draft) manifests(ctx context.Context) ([]client.Object, error) {
	named := referenced(d.namespace, referencesOf(append(pointers(d.vcenters), d.bundle))...)
	out, err := present(ctx, d, named)
	if err != nil {
		return nil, err
	}
	for i := range d.vcenters {
		if v := &d.vcenters[i]; v == d.vcenter || v.ResourceVersion == "" { // others of the cluster stay
			out = append(out, v)
		}
	}
	out = append(out, d.bundle, d.config)
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
