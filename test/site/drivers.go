package site

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// Drivers does what the running drivers would do, since their images only stand
// in: once the cloud provider's pods run it reads the configuration that was
// installed for them, logs in to the vCenter with it, finds each node's virtual
// machine, sets the node's providerID and takes the taint away; once the storage
// driver's pods run it logs in with theirs and registers the driver on the nodes.
// So an installation whose configuration is wrong does not become healthy.
type Drivers struct {
	client kubernetes.Interface
	crds   apiextensions.Interface
	cancel context.CancelFunc
	done   chan struct{}

	mu  sync.Mutex
	err error
}

const (
	csiDriver    = "csi.vsphere.vmware.com"
	csiNamespace = "vmware-system-csi"
)

// StartDrivers plays the drivers on a cluster until Stop.
func StartDrivers(cfg *rest.Config) (*Drivers, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	crds, err := apiextensions.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Drivers{client: client, crds: crds, cancel: cancel, done: make(chan struct{})}
	go d.run(ctx)
	return d, nil
}

// Stop ends it.
func (d *Drivers) Stop() {
	d.cancel()
	<-d.done
}

// Err returns what last went wrong, for the message of a test that waited in vain.
func (d *Drivers) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *Drivers) run(ctx context.Context) {
	defer close(d.done)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := errors.Join(d.cloudProvider(ctx), d.storageDriver(ctx))
		d.mu.Lock()
		d.err = err
		d.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// cloudProvider initialises the nodes that wait for it.
func (d *Drivers) cloudProvider(ctx context.Context) error {
	running, err := d.runningOn(ctx, "kube-system", "name=vsphere-cloud-controller-manager")
	if err != nil || len(running) == 0 {
		return err
	}
	nodes, err := d.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var waiting []corev1.Node
	for _, n := range nodes.Items {
		if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cluster.TaintUninitialized }) {
			waiting = append(waiting, n)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	logins, err := d.cpiLogins(ctx)
	if err != nil {
		return fmt.Errorf("cloud provider: %w", err)
	}
	for _, n := range waiting {
		if err := d.initialise(ctx, n, logins); err != nil {
			return fmt.Errorf("cloud provider: node %s: %w", n.Name, err)
		}
	}
	return nil
}

// initialise sets a node's providerID by the VM with its UUID.
func (d *Drivers) initialise(ctx context.Context, n corev1.Node, logins []login) error {
	uuid := strings.ToLower(n.Status.NodeInfo.SystemUUID)
	for _, l := range logins {
		found, err := l.hasVM(ctx, uuid)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		n.Spec.ProviderID = "vsphere://" + uuid
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cluster.TaintUninitialized })
		_, err = d.client.CoreV1().Nodes().Update(ctx, &n, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return nil // somebody else wrote it: next time round
		}
		return err
	}
	return fmt.Errorf("no VM with UUID %q", uuid)
}

// storageDriver registers the driver on the nodes where its pods run.
func (d *Drivers) storageDriver(ctx context.Context) error {
	controllers, err := d.runningOn(ctx, csiNamespace, "app=vsphere-csi-controller")
	if err != nil || len(controllers) == 0 {
		return err
	}
	if err := d.defineTopology(ctx); err != nil {
		return fmt.Errorf("storage driver: %w", err)
	}
	nodes, err := d.runningOn(ctx, csiNamespace, "app=vsphere-csi-node")
	if err != nil {
		return err
	}
	for _, name := range nodes {
		existing, err := d.client.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && slices.ContainsFunc(existing.Spec.Drivers, func(x storagev1.CSINodeDriver) bool { return x.Name == csiDriver }) {
			continue
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		logins, err := d.csiLogins(ctx)
		if err != nil {
			return fmt.Errorf("storage driver: %w", err)
		}
		for _, l := range logins {
			if _, err := l.hasVM(ctx, "none"); err != nil {
				return fmt.Errorf("storage driver: %w", err)
			}
		}
		if err := d.register(ctx, name, existing); err != nil {
			return fmt.Errorf("storage driver: node %s: %w", name, err)
		}
	}
	return nil
}

// defineTopology makes the kind that the syncer makes when it runs.
func (d *Drivers) defineTopology(ctx context.Context) error {
	const plural, group = "csinodetopologies", "cns.vmware.com"
	_, err := d.crds.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: "csinodetopology", Kind: "CSINodeTopology"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1alpha1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true),
				}},
			}},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (d *Drivers) register(ctx context.Context, name string, existing *storagev1.CSINode) error {
	node, err := d.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	driver := storagev1.CSINodeDriver{Name: csiDriver, NodeID: strings.ToLower(node.Status.NodeInfo.SystemUUID)}
	if existing != nil && existing.Name != "" {
		existing.Spec.Drivers = append(existing.Spec.Drivers, driver)
		_, err = d.client.StorageV1().CSINodes().Update(ctx, existing, metav1.UpdateOptions{})
		return err
	}
	_, err = d.client.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID},
		}},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{driver}},
	}, metav1.CreateOptions{})
	return err
}

// runningOn returns the nodes on which a pod with the labels is ready.
func (d *Drivers) runningOn(ctx context.Context, namespace, selector string) ([]string, error) {
	pods, err := d.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, p := range pods.Items {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				nodes = append(nodes, p.Spec.NodeName)
			}
		}
	}
	return nodes, nil
}

// login is a vCenter and an account as a driver's configuration gives them.
type login struct {
	server, username, password string
	port                       int
	insecure                   bool
	thumbprint                 string
	ca                         []byte
}

// cpiLogins reads the cloud provider's configuration as the cloud provider does:
// YAML in a ConfigMap, credentials in the Secret that it names.
func (d *Drivers) cpiLogins(ctx context.Context) ([]login, error) {
	cm, err := d.client.CoreV1().ConfigMaps("kube-system").Get(ctx, "vsphere-cloud-config", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	type section struct {
		Server          string `yaml:"server"`
		Port            int    `yaml:"port"`
		Insecure        bool   `yaml:"insecureFlag"`
		Thumbprint      string `yaml:"thumbprint"`
		CAFile          string `yaml:"caFile"`
		SecretName      string `yaml:"secretName"`
		SecretNamespace string `yaml:"secretNamespace"`
	}
	var config struct {
		Global  section            `yaml:"global"`
		VCenter map[string]section `yaml:"vcenter"`
	}
	if err := yaml.Unmarshal([]byte(cm.Data["vsphere.conf"]), &config); err != nil {
		return nil, err
	}
	var out []login
	for _, vc := range config.VCenter {
		name, namespace := first(vc.SecretName, config.Global.SecretName), first(vc.SecretNamespace, config.Global.SecretNamespace)
		secret, err := d.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("secret %s/%s: %w", namespace, name, err)
		}
		l := login{
			server: vc.Server, port: vc.Port, insecure: vc.Insecure || config.Global.Insecure,
			thumbprint: first(vc.Thumbprint, config.Global.Thumbprint),
			username:   string(secret.Data[vc.Server+".username"]), password: string(secret.Data[vc.Server+".password"]),
		}
		if l.username == "" {
			return nil, fmt.Errorf("credentials not found for server %s", vc.Server)
		}
		if file := first(vc.CAFile, config.Global.CAFile); file != "" {
			l.ca = []byte(cm.Data[path.Base(file)])
		}
		out = append(out, l)
	}
	return out, nil
}

// csiLogins reads the storage driver's configuration: INI in a Secret.
func (d *Drivers) csiLogins(ctx context.Context) ([]login, error) {
	secret, err := d.client.CoreV1().Secrets(csiNamespace).Get(ctx, "vsphere-config-secret", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	sections := parseINI(string(secret.Data["csi-vsphere.conf"]))
	var out []login
	for name, keys := range sections {
		server, ok := strings.CutPrefix(name, "VirtualCenter ")
		if !ok {
			continue
		}
		get := func(key string) string { return first(keys[key], sections["Global"][key]) }
		l := login{
			server: strings.Trim(server, `"`), username: get("user"), password: get("password"),
			insecure: get("insecure-flag") == "true", thumbprint: get("thumbprint"),
		}
		l.port, _ = strconv.Atoi(first(get("port"), "443"))
		if file := get("ca-file"); file != "" {
			l.ca = secret.Data[path.Base(file)]
		}
		out = append(out, l)
	}
	if len(out) == 0 {
		return nil, errors.New("csi-vsphere.conf has no VirtualCenter section")
	}
	return out, nil
}

// parseINI reads the quoted form that the driver's configuration is written in.
func parseINI(text string) map[string]map[string]string {
	sections, current := map[string]map[string]string{}, map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			current = map[string]string{}
			sections[line[1:len(line)-1]] = current
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok {
			value = strings.TrimSpace(value)
			if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
				value = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(value[1 : len(value)-1])
			}
			current[strings.TrimSpace(key)] = value
		}
	}
	return sections
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// hasVM logs in, looks for a VM by its BIOS UUID, and logs out.
func (l login) hasVM(ctx context.Context, uuid string) (bool, error) {
	u := &url.URL{Scheme: "https", Host: fmt.Sprintf("%s:%d", l.server, max(l.port, 1)), Path: vim25.Path}
	sc := soap.NewClient(u, l.insecure)
	if l.ca != nil {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(l.ca) {
			return false, errors.New("failed to load CA file")
		}
		sc.DefaultTransport().TLSClientConfig.RootCAs = pool
	}
	if l.thumbprint != "" {
		sc.SetThumbprint(u.Host, l.thumbprint)
	}
	vc, err := vim25.NewClient(ctx, sc)
	if err != nil {
		return false, err
	}
	c := &govmomi.Client{Client: vc, SessionManager: session.NewManager(vc)}
	if err := c.Login(ctx, url.UserPassword(l.username, l.password)); err != nil {
		return false, err
	}
	defer func() { _ = c.Logout(context.WithoutCancel(ctx)) }()
	vm, err := object.NewSearchIndex(vc).FindByUuid(ctx, nil, uuid, true, nil)
	return vm != nil, err
}
