package vdoconfig

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

// render makes the objects of the releases decided for.
func (p *pass) render(ctx context.Context) (*render.Rendered, error) {
	if len(p.decision.releases) == 0 {
		return &render.Rendered{}, nil
	}
	in := render.Input{
		Lock: p.site.contents.Lock, Manifests: p.site.contents.Manifests, Matrix: p.site.matrix, Installed: p.site.installed,
		Repository: p.site.bundle.Status.Repository,
		Releases:   p.decision.releases, Spec: p.spec, VCenters: p.site.vcenters, Cluster: p.site.cluster,
		PullSecret: p.site.login.data, HashKey: p.site.hash,
	}
	in.Cluster.ForeignSnapshotController = p.foreignSnapshotController()
	var err error
	if in.Webhook, err = p.webhook(ctx); err != nil {
		if err := p.at(matrix.CSI, err); err != nil {
			return nil, err
		}
		p.decision.leave(matrix.CSI, err.Error())
		in.Releases = p.decision.releases
	}
	rendered, err := p.renderable(in)
	if err != nil {
		return nil, err
	}
	p.outcome.notes = append(p.outcome.notes, rendered.Notes...)
	return rendered, nil
}

// renderable renders what can be. Where a driver's configuration cannot be made, or is not
// proven, it is kept as it is, and all else of the driver goes on. Where that cannot be
// rendered either it is an error, or, as the last resort, the driver is left as it is.
func (p *pass) renderable(in render.Input) (*render.Rendered, error) {
	malformed := map[matrix.Driver]error{}
	in.Keep = map[matrix.Driver]bool{matrix.CPI: p.unproven(matrix.CPI), matrix.CSI: p.unproven(matrix.CSI)}
	for {
		rendered, err := render.Render(in)
		var failed render.Failed
		if !errors.As(err, &failed) {
			p.site.malformed = malformed
			for d, why := range malformed {
				p.fault(d, why)
			}
			return rendered, err
		}
		for d, why := range failed {
			switch {
			case !in.Keep[d]:
				malformed[d], in.Keep[d] = why, true
			case p.leavesOut:
				p.decision.leave(d, why.Error())
			default:
				return nil, err
			}
		}
		in.Releases = p.decision.releases
	}
}

// webhook returns the webhook's certificate: the one that was seen to, or, before the
// webhook is registered, one from its Secret or a new one, which is kept by being
// applied.
func (p *pass) webhook(ctx context.Context) (*webhookcert.Certificate, error) {
	sp := p.spec.StorageProvider
	if sp == nil || !sp.Webhook || p.decision.version(matrix.CSI) == "" {
		return nil, nil
	}
	if p.site.certificate != nil {
		return p.site.certificate, nil
	}
	data, err := p.Cluster.Secret(ctx, types.NamespacedName{Namespace: render.CSINamespace, Name: render.WebhookSecret})
	if err != nil {
		return nil, err
	}
	cert, _, err := webhookcert.Ensure(data, nil, p.now, rand.Reader)
	return cert, err
}

// others splits the foreign workloads: one snapshot-controller of the version wanted
// serves as well as ours, any other is a conflict.
func (p *pass) others() (conflicts []plan.Other, served bool) {
	wanted := p.decision.version(matrix.SnapshotController)
	for _, w := range p.site.observed.Foreign() {
		if w.Driver == matrix.SnapshotController && (p.site.distribution == openshift || w.Version == wanted) {
			served = true
			continue
		}
		conflicts = append(conflicts, plan.Other{
			ID:     inventory.ID{Key: inventory.Key{Group: "apps", Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}, Version: "v1"},
			Driver: w.Driver, Version: w.Version, Helm: w.Helm,
		})
	}
	return conflicts, served
}

func (p *pass) foreignSnapshotController() bool {
	_, served := p.others()
	return served && p.site.distribution != openshift // there rendering knows by itself
}

// plan compares what shall be with what is. It returns what is.
func (p *pass) plan(ctx context.Context, rendered *render.Rendered) (plan.Live, error) {
	leftovers := p.leftovers()
	live, refused, err := p.Cluster.Read(ctx, ids(rendered, p.site.inventory, leftovers))
	if err != nil {
		return nil, err
	}
	if p.site.login.kept {
		p.site.login.keep(rendered, live)
	}
	keepConfiguration(rendered, live)
	dry, err := p.Cluster.DryRun(ctx, rendered.Objects(), live)
	if err != nil {
		return nil, err
	}
	others, _ := p.others()
	content, err := p.content()
	if err != nil {
		return nil, err
	}
	made := plan.Make(plan.Input{
		Key: p.site.hash, Content: content,
		Stages: rendered.Stages, Live: live, Refused: refused, DryRun: dry, Inventory: p.site.inventory,
		Held: p.decision.held, Leaving: p.leaving(), Leftovers: leftovers, Others: others,
	})
	p.outcome.plan = &made
	return live, nil
}

// ids names everything that the plan is about, each once.
func ids(rendered *render.Rendered, inv inventory.Inventory, leftovers []plan.Leftover) []inventory.ID {
	all := map[inventory.Key]inventory.ID{}
	for _, l := range leftovers {
		all[l.Key] = l.ID
	}
	for _, e := range inv.Entries() {
		all[e.Key] = e.ID
	}
	for _, o := range rendered.Objects() {
		id := plan.IDOf(o.Unstructured)
		all[id.Key] = id
	}
	return slices.SortedFunc(maps.Values(all), func(a, b inventory.ID) int { return a.Compare(b.Key) })
}

// keepConfiguration takes the configuration that is on the cluster where it is to be kept,
// and leaves out what is not there: what a vCenter did not let in neither replaces what
// works nor fills a gap, and a wrong password is not given to drivers that would lock the
// account with it.
func keepConfiguration(rendered *render.Rendered, live plan.Live) {
	for i := range rendered.Stages {
		s := &rendered.Stages[i]
		s.Objects = slices.DeleteFunc(s.Objects, func(o render.Object) bool {
			return o.Config == render.ConfigData && live[plan.IDOf(o.Unstructured).Key] == nil
		})
		for _, o := range s.Objects {
			if was := live[plan.IDOf(o.Unstructured).Key]; was != nil {
				keepPart(o, was)
			}
		}
	}
}

// keepPart takes an object's part in a configuration from the one on the cluster.
func keepPart(o render.Object, was *unstructured.Unstructured) {
	switch o.Config {
	case render.ConfigData:
		for _, field := range []string{"data", "binaryData"} {
			delete(o.Object, field)
			if v, ok := was.Object[field]; ok {
				o.Object[field] = v
			}
		}
	case render.ConfigHash:
		path := []string{"spec", "template", "metadata", "annotations", render.AnnotationConfigHash}
		if hash, ok, _ := unstructured.NestedString(was.Object, path...); ok {
			_ = unstructured.SetNestedField(o.Object, hash, path...) //nolint:errcheck // rendering has set it before
		} else {
			unstructured.RemoveNestedField(o.Object, path...)
		}
	}
}

// leaving says what becomes of drivers that are installed and not asked for any more.
func (p *pass) leaving() map[matrix.Driver]plan.Leave {
	all := map[matrix.Driver]plan.Leave{}
	if p.config.Spec.OnDelete == v1alpha1.DeleteOrphan {
		for _, d := range p.unasked() {
			all[d] = plan.Leave{Action: plan.Forget, Reason: "spec.onDelete is Orphan"}
		}
	}
	for _, d := range p.site.retained {
		all[d] = plan.Leave{Action: plan.Keep, Reason: "volumes use it"}
	}
	maps.Copy(all, p.retainNetwork())
	return all
}

// retainNetwork leaves the network plug-in where it is, unless spec.onDelete asks for
// the removal of everything: without it no pod of the cluster has a network, the
// operator's own among them.
func (p *pass) retainNetwork() map[matrix.Driver]plan.Leave {
	if p.config.Spec.OnDelete == v1alpha1.DeleteRemove {
		return nil
	}
	return map[matrix.Driver]plan.Leave{matrix.CNI: {Action: plan.Forget, Reason: "all pods of the cluster need the network: spec.onDelete Remove removes it, after the rest"}}
}

// volumesFault says why the storage driver stays.
func volumesFault(volumes, attachments int) error {
	return &fault.Error{
		Reason: fault.Refused, Op: "remove", Subject: "csi",
		Hint: "delete the claims and volumes first; or set spec.onDelete to Remove, which leaves them without a driver, or to Orphan, which leaves the drivers installed",
		Err:  fmt.Errorf("%d PersistentVolumes and %d VolumeAttachments use csi.vsphere.vmware.com", volumes, attachments),
	}
}

// leftovers are objects of earlier installations that may go once all is healthy.
func (p *pass) leftovers() []plan.Leftover {
	var all []plan.Leftover
	if csi, err := matrix.ParseVersion(p.decision.version(matrix.CSI)); err == nil && !csi.LessThan(withoutSnapshotWebhook) {
		for _, id := range snapshotWebhook {
			all = append(all, plan.Leftover{ID: id, Driver: matrix.CSI, Reason: "the snapshot validation webhook is gone since CSI 3.4, and would refuse snapshots without its pods"})
		}
	}
	if p.decision.version(matrix.CPI) != "" && len(p.site.unproven) == 0 {
		all = append(all, plan.Leftover{
			ID: core("Secret", render.CPINamespace, "cpi-global-secret"), Driver: matrix.CPI,
			Reason: "the earlier operator's copy of the credentials is not read any more", Only: p.copyOfCredentials,
		})
	}
	return all
}

// withoutSnapshotWebhook is the first CSI release whose installation removes it.
var withoutSnapshotWebhook = mustVersion("3.4.0")

func mustVersion(s string) matrix.Version {
	v, err := matrix.ParseVersion(s)
	if err != nil {
		panic(err)
	}
	return v
}

// snapshotWebhook are the objects of upstream's snapshot validation webhook.
var snapshotWebhook = []inventory.ID{
	rights("ClusterRole", "snapshot-webhook-runner"),
	rights("ClusterRoleBinding", "snapshot-webhook-role"),
	core("ServiceAccount", "kube-system", "snapshot-webhook"),
	core("Service", "kube-system", "snapshot-validation-service"),
	core("Secret", "kube-system", "snapshot-webhook-certs"),
	{Key: inventory.Key{Group: "apps", Kind: "Deployment", Namespace: "kube-system", Name: "snapshot-validation-deployment"}, Version: "v1"},
	{Key: inventory.Key{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration", Name: "validation-webhook.snapshot.storage.k8s.io"}, Version: "v1"},
}

func core(kind, namespace, name string) inventory.ID {
	return inventory.ID{Key: inventory.Key{Kind: kind, Namespace: namespace, Name: name}, Version: "v1"}
}

func rights(kind, name string) inventory.ID {
	return inventory.ID{Key: inventory.Key{Group: "rbac.authorization.k8s.io", Kind: kind, Name: name}, Version: "v1"}
}

// copyOfCredentials tells whether a Secret has nothing but what we have too: the
// accounts of the vCenters of this VDOConfig, with the same values.
func (p *pass) copyOfCredentials(live *unstructured.Unstructured) bool {
	data, _, _ := unstructured.NestedStringMap(live.Object, "data")
	for key, encoded := range data {
		value, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || !p.knows(key, value) {
			return false
		}
	}
	return true
}

func (p *pass) knows(key string, value []byte) bool {
	for _, vc := range p.site.vcenters {
		for suffix, ours := range map[string]string{".username": vc.Credentials.Username, ".password": vc.Credentials.Password} {
			if strings.EqualFold(key, vc.Server+suffix) && bytes.Equal(bytes.TrimRight(value, "\r\n"), bytes.TrimRight([]byte(ours), "\r\n")) {
				return true
			}
		}
	}
	return false
}
