// Package services renders the services of a SIPCluster (load balancers, jump hosts and login) as the objects that
// the API server shall have. Everything that differs between reconciles (time, Secrets) comes in by [Input].
//
//	for _, s := range services.Render(input) { apply(s.Objects) … ready when Deployment s.Name is rolled out }
//
// # Contract
//
//   - Every object is namespaced. Its apiVersion, kind and name are set; it has no owner, finalizer or status. The
//     caller sets the services' namespace and its own labels.
//   - Each service has exactly one Deployment and one Service, both of the service's name: see [Name].
//   - A Deployment's pod template changes exactly when its pods have to be rolled.
//   - Same input, same bytes: random parts (keys, certificates) are adopted from [Input.Kept].
//   - Only Secrets have secrets, no other object and no error.
//   - A fault concerns one service: it is in its [Service], and the others are rendered.
package services

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"text/template/parse"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
)

// Kind is one kind of service, named as its field of spec.services.
type Kind string

// The kinds.
const (
	LoadBalancerControlPlane Kind = "loadBalancerControlPlane"
	LoadBalancerWorker       Kind = "loadBalancerWorker"
	JumpHost                 Kind = "jumpHost"
	Auth                     Kind = "auth"
)

// Input is everything that the services are rendered from.
type Input struct {
	Cluster types.NamespacedName // of the SIPCluster
	Spec    airship.Services
	// Hosts to serve, by role, sorted by namespace and name, without those that leave. Services connect to each of
	// their addresses: the caller leaves out those that they may not reach.
	Hosts map[airship.Role][]Host
	// Secret reads a Secret that the spec refers to; nil for a missing one. Errors are faults.
	Secret func(airship.SecretName) (Secret, error)
	// Kept are the cluster's Secrets of an earlier reconcile, by name: no two have the same.
	Kept map[string]Secret
	// Running are the cluster's Deployments of an earlier reconcile, by name.
	Running map[string]*appsv1.Deployment
	// Images are those of the bundle. Unusable is why the bundle cannot be used: then services keep their current
	// image.
	Images   Images
	Unusable error
	// Templates has templates of HAProxy's configuration as KIND.cfg, in the place of the frontends and backends here.
	// Nil for none.
	Templates fs.FS
	// PullSecret is a .dockerconfigjson for the bundle's mirror; empty for none.
	PullSecret []byte
	// OutOfReach reports whether services may not connect to an address of a host.
	OutOfReach func(netip.Addr) bool
	// Egress are the networks of OIDC and other login providers; without any, Dex reaches none.
	Egress []netip.Prefix
	// APIServers are the addresses of the management API, where Dex keeps its state.
	APIServers []netip.AddrPort
	// AssignsUsers is whether the cluster gives pods users and groups of the namespace's range and refuses others, as
	// OpenShift's restricted-v2 does. Else pods set a number: images name a user, which the kubelet cannot tell from
	// root.
	AssignsUsers bool
	Now          time.Time
}

// Images returns the reference, with a digest, that the services of a kind run. Errors are faults.
type Images func(Kind) (string, error)

// Host is one BareMetalHost that a SIPCluster holds.
type Host struct {
	Namespace, Name string
	// Addresses on the networks that the services use, by nodeInterfaceId; "" is the only network. IPv4 before IPv6.
	// None if they are unknown.
	Addresses map[string][]netip.Addr
	// Unread is whether its data could not be read, so that an address may be missing. Before are then its earlier
	// addresses: a service keeps forwarding to those of them that it already forwards to.
	Unread bool
	Before []netip.Addr
}

// Secret is the data of a Secret. It prints as redacted.
type Secret map[string][]byte

// String keeps it out of logs.
func (Secret) String() string { return "[redacted]" }

// GoString keeps it out of logs.
func (Secret) GoString() string { return "[redacted]" }

// Service is one service.
type Service struct {
	Name string // of its Deployment and Service
	Kind Kind
	// Image that it runs, with digest.
	Image string
	// Endpoints are the ports that every node answers on, as :PORT or :START-END.
	Endpoints []string
	// Objects to apply, in this order. If there are none, the cluster's objects stay.
	Objects []*unstructured.Unstructured
	// Err is why it cannot be rendered, or does not serve as the spec says: a fault that names the field.
	Err error
}

// Leads reports whether a pod, by its labels, belongs to a service that forwards to hosts.
func Leads(labels map[string]string) bool { return labels[labelComponent] != string(Auth) }

// LeadsTo returns the addresses that a Deployment's pods forward to; none without a Deployment.
func LeadsTo(deployment *appsv1.Deployment) (all []netip.Addr) {
	if deployment == nil {
		return nil
	}
	for text := range strings.SplitSeq(deployment.Annotations[annotationLeads], ",") {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// NameOf returns the name of the service that an object belongs to, "" for none.
func NameOf(o metav1.Object) string { return o.GetLabels()[labelInstance] }

// maxName leaves room for suffixes of further objects, such as "-tls".
const maxName = 63 - 16

// Name returns the name of a service of a SIPCluster: sip-CLUSTER-KIND-INDEX-HASH, cut to fit a DNS label. The hash
// keeps clusters apart whose names are cut or have dots; the index counts services of one kind.
func Name(cluster string, kind Kind, index int) string {
	short := map[Kind]string{
		LoadBalancerControlPlane: "lb-cp", LoadBalancerWorker: "lb-worker", JumpHost: "jump", Auth: "auth",
	}[kind]
	sum := sha256.Sum256([]byte(cluster))
	tail := fmt.Sprintf("-%s-%d-%x", short, index, sum[:4])
	return "sip-" + label(cluster, maxName-len("sip-")-len(tail)) + tail
}

// Namespace returns the name of the namespace for the services of one SIPCluster. The operator records the cluster on
// it.
func Namespace(of types.NamespacedName) string {
	sum := sha256.Sum256([]byte(of.String()))
	return fmt.Sprintf("sip-%s-%x", label(of.Namespace+"-"+of.Name, 63-len("sip-")-1-16), sum[:8])
}

func label(s string, most int) string { return strings.ReplaceAll(s[:min(len(s), most)], ".", "-") }

// filled returns an administrator's template with the ports and hosts, and sets the hash to the template's; "" without
// one. It has the form of the original SIP operator's.
func (r *rendering) filled() (string, error) {
	name := string(r.Kind) + ".cfg"
	if r.in.Templates == nil {
		return "", nil
	}
	text, err := fs.ReadFile(r.in.Templates, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var ports, servers []any
	for _, p := range r.service.Ports {
		ports = append(ports, map[string]any{"Name": p.Name, "ContainerPort": p.TargetPort.IntVal})
	}
	for _, h := range r.hosts {
		if len(h.Addresses) > 0 {
			servers = append(servers, map[string]any{"Name": h.Name + "." + h.Namespace, "IP": h.Addresses[0].String()})
		}
	}
	root := map[string]any{"ContainerPorts": ports, "Servers": servers}
	trees, errOf := parse.Parse(name, string(text), "", "")
	f := filling{tree: trees[name], variables: map[string]any{"$": root}}
	if err = errors.Join(err, errOf); err == nil && f.tree != nil { // else it is empty
		err = f.list(f.tree.Root, root)
	}
	if err != nil {
		return "", r.wrong("", err.Error(),
			"correct the ConfigMap "+strings.ToLower(string(r.Kind))+" in the operator's namespace, or delete it")
	}
	r.hash = hashed(nil, text)
	return f.out.String(), nil
}

// filling executes a template's ranges, variables and fields. Package text/template would keep all methods of all
// types in the program, and so make it much larger.
type filling struct {
	out       strings.Builder
	tree      *parse.Tree
	variables map[string]any
}

func (f *filling) list(l *parse.ListNode, dot any) error {
	for _, n := range l.Nodes {
		var err error
		switch n := n.(type) {
		case *parse.TextNode:
			f.out.Write(n.Text)
		case *parse.CommentNode:
		case *parse.ActionNode:
			var v any
			if v, err = f.value(n.Pipe, dot); len(n.Pipe.Decl) == 0 && err == nil {
				fmt.Fprint(&f.out, v)
			}
		case *parse.RangeNode:
			err = f.each(n, dot)
		default:
			err = f.wrong(n, "only ranges, variables and fields are supported")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *filling) each(n *parse.RangeNode, dot any) error {
	v, err := f.value(n.Pipe, dot)
	items, is := v.([]any)
	if err == nil && (!is || n.ElseList != nil || len(n.Pipe.Decl) > 1) {
		err = f.wrong(n, "this range is not supported")
	}
	for i := 0; i < len(items) && err == nil; i++ {
		for _, d := range n.Pipe.Decl {
			f.variables[d.Ident[0]] = items[i]
		}
		err = f.list(n.List, items[i])
	}
	return err
}

// value returns a field or a variable, and sets the variable that a pipeline declares.
func (f *filling) value(p *parse.PipeNode, dot any) (any, error) {
	v, fields := dot, []string(nil)
	switch arg := p.Cmds[0].Args[0].(type) {
	case *parse.DotNode:
	case *parse.FieldNode:
		fields = arg.Ident
	case *parse.VariableNode:
		v, fields = f.variables[arg.Ident[0]], arg.Ident[1:]
	default:
		v = nil
	}
	for _, name := range fields {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	if v == nil || len(p.Cmds) > 1 || len(p.Cmds[0].Args) > 1 {
		return nil, f.wrong(p, "{{%s}} is no field or variable here", p)
	}
	for _, d := range p.Decl {
		f.variables[d.Ident[0]] = v
	}
	return v, nil
}

func (f *filling) wrong(n parse.Node, format string, args ...any) error {
	at, _ := f.tree.ErrorContext(n)
	return fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...))
}
