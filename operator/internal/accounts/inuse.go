package accounts

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// until waits until look returns ""; in a dry run it does not wait.
func (s *Site) until(ctx context.Context, op string, look func() (string, error), hint string) error {
	if s.DryRun {
		return nil
	}
	return clusterstate.Until(ctx, s.Wait, s.Poll, op, hint, look)
}

// behind says which driver does not run with the next account yet; "" if none. It ignores drivers that had another
// account when the rotation began.
func (s *Site) behind(ctx context.Context, r *record) (string, error) {
	secret, err := s.secret(ctx)
	if err != nil {
		return "", err
	}
	if got := loginOf(secret).Username; !s.same(ctx, got, r.Next) {
		return fmt.Sprintf("Secret %s/%s has account %q", s.Namespace, s.Secret, got), nil
	}
	users, err := s.drivers(ctx)
	if err != nil {
		return "", err
	}
	if why, err := s.unverified(ctx, secret, len(users) > 0); why != "" || err != nil {
		return why, err
	}
	for _, d := range users {
		before, had := r.Templates[d.name]
		if !had && !s.uses(ctx, &d, r.Account) && !s.uses(ctx, &d, r.Next) {
			continue
		}
		switch {
		case !s.uses(ctx, &d, r.Next):
			return "the configuration of " + d.name + " has another account", nil
		case before != "" && d.hash == before:
			return "the pods of " + d.name + " were started with the configuration before", nil
		case d.rolling != "":
			return d.rolling, nil
		case s.uses(ctx, &d, r.Account):
			return "the configuration of " + d.name + " still has account " + r.Account, nil
		}
	}
	return "", nil
}

// unverified names a vCenter for which the operator has not tried the Secret yet. It skips a vCenter that the operator
// never checked if no driver is installed: its configuration may exist only in a file.
func (s *Site) unverified(ctx context.Context, secret *corev1.Secret, installed bool) (string, error) {
	for _, p := range s.Places {
		var vcc v1alpha1.VsphereCloudConfig
		err := s.API.Get(ctx, client.ObjectKey{Namespace: p.Config, Name: p.Name}, &vcc)
		if client.IgnoreNotFound(err) != nil {
			return "", err
		}
		if vcc.Status.ObservedGeneration == 0 && !installed {
			continue
		}
		version, _, _ := strings.Cut(vcc.Status.VerifiedCredentials, " ")
		if version == string(secret.UID)+"/"+secret.ResourceVersion {
			continue
		}
		return "the operator has not logged in with it to " + p.Name, nil
	}
	return "", nil
}

// driver is a workload that logs in to vCenters, with the configuration that it reads.
type driver struct {
	name    string // kind and name
	config  map[string][]byte
	hash    string // of the configuration that its pods are started with
	rolling string // why some of its pods are not of the newest template
}

// workloads are the workloads that log in, with the Secrets that they read.
var workloads = []struct {
	object client.Object
	secret client.ObjectKey
}{
	{&appsv1.Deployment{}, client.ObjectKey{Namespace: drivers.CSINamespace, Name: render.CSISecret}},
	{&appsv1.DaemonSet{}, client.ObjectKey{Namespace: render.CPINamespace, Name: render.CPISecret}},
}

func (s *Site) drivers(ctx context.Context) ([]driver, error) {
	var out []driver
	for _, w := range workloads {
		o, name := w.object.DeepCopyObject().(client.Object), drivers.Controller //nolint:forcetypeassert // a copy of one
		if _, cpi := o.(*appsv1.DaemonSet); cpi {
			name = drivers.CloudControllerManager
		}
		err := s.API.Get(ctx, client.ObjectKey{Namespace: w.secret.Namespace, Name: name}, o)
		if client.IgnoreNotFound(err) != nil {
			return nil, clusterstate.Fault("read "+w.secret.Namespace+"/"+name, err)
		}
		if err != nil {
			continue
		}
		var config corev1.Secret
		if err := s.API.Get(ctx, w.secret, &config); client.IgnoreNotFound(err) != nil {
			return nil, clusterstate.Fault("read Secret "+w.secret.String(), err)
		}
		out = append(out, driverOf(w.secret.Namespace+"/"+name, o, config.Data))
	}
	return out, nil
}

func driverOf(name string, o client.Object, config map[string][]byte) driver {
	d := driver{name: name, config: config}
	switch w := o.(type) {
	case *appsv1.Deployment:
		d.hash = w.Spec.Template.Annotations[render.AnnotationConfigHash]
		want := ptr.Deref(w.Spec.Replicas, 1)
		if st := w.Status; st.ObservedGeneration < w.Generation || st.UpdatedReplicas < want || st.Replicas > st.UpdatedReplicas {
			d.rolling = fmt.Sprintf("%d of %d pods of %s are restarted", st.UpdatedReplicas, want, name)
		}
	case *appsv1.DaemonSet:
		d.hash = w.Spec.Template.Annotations[render.AnnotationConfigHash]
		if st := w.Status; st.ObservedGeneration < w.Generation || st.UpdatedNumberScheduled < st.DesiredNumberScheduled || st.NumberAvailable < st.DesiredNumberScheduled {
			d.rolling = fmt.Sprintf("%d of %d pods of %s are restarted and ready", min(st.UpdatedNumberScheduled, st.NumberAvailable), st.DesiredNumberScheduled, name)
		}
	}
	return d
}

var quoted = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)

// uses reports whether a driver's configuration names an account, in its text or as a whole value as in the cloud
// provider's.
func (s *Site) uses(ctx context.Context, d *driver, account string) bool {
	for _, data := range d.config {
		names := []string{string(data)}
		for _, m := range quoted.FindAllSubmatch(data, -1) {
			names = append(names, strings.ReplaceAll(string(m[1]), `\\`, `\`))
		}
		for _, name := range names {
			if strings.ContainsAny(name, `@\`) && !strings.Contains(name, `"`) && s.same(ctx, name, account) {
				return true
			}
		}
	}
	return false
}

// templates returns the hashes of the configuration of each driver that has an account.
func (s *Site) templates(ctx context.Context, account string) (map[string]string, error) {
	users, err := s.drivers(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, d := range users {
		if s.uses(ctx, &d, account) {
			out[d.name] = d.hash
		}
	}
	return out, nil
}

// recent is how long an idle session from a node of this cluster counts as used: restarted drivers leave theirs
// behind. From other addresses each open session counts, since its idle client logs in again.
const recent = 2 * time.Minute

// Agent is the name of vdoctl in its sessions. They do not count: nothing logs in again after a vdoctl that was
// killed.
const Agent = "vdoctl"

// quiet waits until no session uses an account, in the vCenters where a removal changes it. A session that remains
// after the wait is not of this cluster's drivers.
func (s *Site) quiet(ctx context.Context, r *record, account string, made bool) error {
	const hint = "the account is unchanged: find what else logs in with it (another cluster, a backup), end its session, and run " +
		"the same command again; the vCenter ends an idle session by itself, by default after 30 minutes"
	for _, p := range s.Places {
		if !r.touches(ctx, p, account, made) {
			continue
		}
		look := func() (string, error) { return s.inUse(ctx, p, account) }
		if err := s.until(ctx, "wait until no session uses "+account, look, hint); err != nil {
			return err
		}
	}
	return nil
}

// inUse describes a session of an account; "" if there is none.
func (s *Site) inUse(ctx context.Context, p *Place, account string) (string, error) {
	list, err := p.Sessions(ctx, account)
	if err != nil || len(list) == 0 {
		return "", err
	}
	if err := s.readNodes(ctx); err != nil {
		return "", err
	}
	for _, x := range list {
		if x.Agent == Agent || s.nodes[x.Address] && x.Idle > recent {
			continue
		}
		return fmt.Sprintf("account %s is in use in %s, by %q from %q, idle for %s", account, p.Server, x.Agent, x.Address, x.Idle.Round(time.Second)), nil
	}
	return "", nil
}

// readNodes reads the addresses of the nodes, once: there may be thousands. A node that joins later logs in with the
// current Secret.
func (s *Site) readNodes(ctx context.Context) error {
	if s.nodes != nil {
		return nil
	}
	known := map[string]bool{}
	if err := pages.Each(ctx, s.API, &corev1.NodeList{}, func(n *corev1.Node) {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
				known[a.Address] = true
			}
		}
	}); err != nil {
		return clusterstate.Fault("read the nodes", err)
	}
	s.nodes = known
	return nil
}

// resettable refuses to set another password while a driver or a session uses the account.
func (s *Site) resettable(ctx context.Context, r *record, a account) error {
	users, err := s.drivers(ctx)
	if err != nil {
		return err
	}
	for _, d := range users {
		if s.uses(ctx, &d, a.Username) {
			return &fault.Error{Reason: fault.Refused, Op: "reset the password of", Subject: a.Username, Err: fmt.Errorf("%s runs with it, and Secret %s/%s does not have its password", d.name, s.Namespace, s.Secret),
				Hint: credentials.PutBack + "; then, for another password: " + s.command("rotate")}
		}
	}
	return s.quiet(ctx, r, a.Username, true)
}
