package render

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// configDir is the configuration directory in both drivers' pods. All keys of the ConfigMap or Secret are files
// there, so a CA is one more key.
const configDir = "/etc/cloud"

// cpiConfig is vsphere.conf in the cloud provider's YAML form. It has no user and password. With them, even empty,
// the provider would log in at every start until the account locks.
type cpiConfig struct {
	Global  cpiGlobal             `json:"global"`
	VCenter map[string]cpiVCenter `json:"vcenter"`
	Labels  map[string]string     `json:"labels,omitempty"`
	Nodes   map[string]string     `json:"nodes,omitempty"`
}

type cpiGlobal struct {
	Port            int32  `json:"port"`
	SecretName      string `json:"secretName"`
	SecretNamespace string `json:"secretNamespace"`
}

type cpiVCenter struct {
	Server       string   `json:"server"`
	Port         int32    `json:"port"`
	InsecureFlag bool     `json:"insecureFlag"`
	Datacenters  []string `json:"datacenters,omitempty"`
	CAFile       string   `json:"caFile,omitempty"`
	Thumbprint   string   `json:"thumbprint,omitempty"`
	IPFamily     []string `json:"ipFamily,omitempty"`
}

// renderCPI renders the cloud provider with our ConfigMap and Secret instead of the samples.
func (r *renderer) renderCPI(s *source) error {
	if r.in.Spec.Cloud() == nil {
		return missingSettings(s, "cloudProvider")
	}
	kept := r.in.Keep[matrix.CPI]
	vcenters, err := r.in.vcenters(matrix.CPI, CloudVCenters(r.in.Spec.Cloud()))
	if err == nil && len(vcenters) == 0 && !kept {
		err = missingSettings(s, "cloudProvider.vsphereCloudConfigs")
	}
	err = fault.Join(err, s.requires("DaemonSet "+drivers.CloudControllerManager))
	if err == nil && !kept {
		r.narrowed = r.checkNarrowing(vcenters)
		err = fault.Join(r.checkExclusion(), r.narrowed)
	}
	config, configErr := r.cpiData(vcenters)
	if err := fault.Join(err, configErr); err != nil {
		return err
	}
	credentials := cpiCredentials(vcenters)
	hash := configHash(r.in.HashKey, config, credentials)
	r.cloud = &Cloud{}
	if kept {
		config, credentials, hash = nil, nil, ""
	} else {
		r.cloud.Searched = Places(config[CPIConfigKey])
	}
	for _, o := range s.objects {
		switch kind, name := o.GetKind(), o.GetName(); {
		case kind == "Secret" && name == CPISecret, kind == "ConfigMap" && name == CPIConfigMap:
			// upstream's samples, with placeholders for a vCenter and its password
		case kind == "DaemonSet":
			setFamilies(o, r.in.Spec.Cloud().IPFamilies)
			r.keepForeignNodes(o)
			r.placeReader(s, o, hash)
			r.waitFor(StageNode, Wait{Kind: NodesInitialized, Nodes: r.nodesFor(o),
				Why: "the storage driver's controller waits for a node that the cloud provider has initialised"})
		default:
			r.place(s, o)
		}
	}
	r.drops(kept, "cloud provider's configuration", r.in.Cluster.ExistingCloudConfig, config[CPIConfigKey])
	r.configuration(s, configMap(CPINamespace, CPIConfigMap, config))
	r.configuration(s, secret(CPINamespace, CPISecret, "Opaque", credentials))
	return nil
}

func (r *renderer) cpiData(vcenters []vcenter) (map[string][]byte, error) {
	p := r.in.Spec.Cloud()
	nodes, err := nodeAddresses(p)
	if err != nil {
		return nil, err
	}
	config := cpiConfig{
		Global:  cpiGlobal{Port: 443, SecretName: CPISecret, SecretNamespace: CPINamespace},
		VCenter: map[string]cpiVCenter{}, Nodes: nodes,
	}
	if t := p.Topology; t != nil && t.Zone != "" {
		config.Labels = map[string]string{"region": t.Region, "zone": t.Zone}
	}
	for _, v := range vcenters {
		config.VCenter[v.name] = cpiVCenter{
			Server: v.Server, Port: v.Port, InsecureFlag: v.Insecure,
			Datacenters: v.Datacenters, CAFile: v.caFile(), Thumbprint: v.Thumbprint, IPFamily: p.IPFamilies,
		}
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", CPIConfigKey, err)
	}
	data := map[string][]byte{CPIConfigKey: text}
	addCAs(data, vcenters)
	return data, nil
}

// cpiCredentials returns SERVER.username and SERVER.password. No key of a Secret can have the colons of IPv6, so
// such servers get the form with a common suffix.
func cpiCredentials(vcenters []vcenter) map[string][]byte {
	data := map[string][]byte{}
	for i, v := range vcenters {
		if !v.ipv6() {
			data[v.Server+".username"] = []byte(v.Credentials.Username)
			data[v.Server+".password"] = []byte(v.Credentials.Password)
			continue
		}
		id := strconv.Itoa(i + 1)
		data["server_"+id] = []byte(v.Server)
		data["username_"+id] = []byte(v.Credentials.Username)
		data["password_"+id] = []byte(v.Credentials.Password)
	}
	return data
}

func missingSettings(s *source, field string) error {
	return fault.Errorf(fault.InvalidInput, "configure", s.name(), "set spec."+field+" of the VDOConfig",
		"spec.%s is not set", field)
}

func badSpec(field, hint, format string, args ...any) error {
	return fault.Errorf(fault.InvalidInput, "configure drivers", field, hint, format, args...)
}

// problems are errors in a VDOConfig and the objects that it names.
type problems []error

func (p *problems) when(wrong bool, field, hint, format string, args ...any) {
	if wrong {
		*p = append(*p, badSpec(field, hint, format, args...))
	}
}

// requires reports missing objects, each "Kind name", that the driver cannot work without.
func (s *source) requires(objects ...string) error {
	var errs []error
	for _, want := range objects {
		kind, name, _ := strings.Cut(want, " ")
		if s.find(kind, name) == nil {
			errs = append(errs, fault.Errorf(fault.Incomplete, "read manifests", s.name(),
				"make the bundle again from upstream's manifests", "there is no %s", want))
		}
	}
	return fault.Join(errs...)
}

// placeReader places a workload that reads the driver's configuration; without a hash, the cluster's hash stays.
func (r *renderer) placeReader(s *source, o *unstructured.Unstructured, hash string) {
	setTemplateAnnotation(o, AnnotationConfigHash, hash)
	r.letOpenShiftChooseUser(o)
	if added := r.place(s, o); hash == "" {
		added.Config = ConfigHash
	}
}

func setTemplateAnnotation(o *unstructured.Unstructured, key, value string) {
	path := []string{"spec", "template", "metadata", "annotations"}
	annotations, _, _ := unstructured.NestedStringMap(o.Object, path...)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	_ = unstructured.SetNestedStringMap(o.Object, annotations, path...) // the lint saw that the template is a map
}
