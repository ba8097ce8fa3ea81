package render

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

const minHashKey = 16 // bytes

// Failed are the drivers that could not be rendered, and why. Rendering without them works for the rest.
type Failed map[matrix.Driver]error

// Error returns all errors, one a line.
func (f Failed) Error() string { return fault.Join(f.Unwrap()...).Error() }

// Unwrap returns the errors, sorted by driver.
func (f Failed) Unwrap() []error {
	var all []error
	for _, d := range slices.Sorted(maps.Keys(f)) {
		all = append(all, f[d])
	}
	return all
}

// Render returns the objects of the chosen releases, in stages. It reports all independent problems together, those
// of drivers as [Failed]; with a problem it returns no objects.
func Render(in Input) (*Rendered, error) {
	r := &renderer{in: &in, stages: map[string]*Stage{}}
	if err := in.check(); err != nil {
		return nil, err
	}
	failed := Failed{}
	for _, d := range []matrix.Driver{matrix.CNI, matrix.CPI, matrix.SnapshotController, matrix.CSI} {
		for _, id := range in.Releases {
			if id.Driver != d {
				continue
			}
			if err := r.release(id); err != nil {
				failed[d] = err
			}
		}
	}
	if len(failed) > 0 {
		return nil, failed
	}
	r.addMirrorSet()
	return r.rendered()
}

// check reports problems that concern every driver.
func (in *Input) check() error {
	var errs []error
	if _, err := image.ParseReference(in.Repository + "@" + image.DigestOf(nil).String()); err != nil || strings.Contains(in.Repository, "@") {
		errs = append(errs, fault.Errorf(fault.InvalidInput, "render drivers",
			fmt.Sprintf("repository %q", in.Repository), "set the DriverBundle's spec.reference to HOST/PATH:TAG", "it is not a repository"))
	}
	if len(in.HashKey) < minHashKey {
		errs = append(errs, fault.Errorf(fault.InvalidInput, "render drivers", "configuration hash",
			"delete the operator's Secret vdo-config-hash: it makes another, and no pod restarts",
			"a key of %d bytes: at least %d are needed", len(in.HashKey), minHashKey))
	}
	seen := map[matrix.Driver]bool{}
	for _, id := range in.Releases {
		if seen[id.Driver] {
			errs = append(errs, fault.Errorf(fault.Internal, "render drivers", string(id.Driver), "",
				"two releases of one driver were chosen"))
		}
		seen[id.Driver] = true
		if drivers.CeilingOf(id.Driver) == nil {
			errs = append(errs, unknownDriver(id))
		}
	}
	return fault.Join(errs...)
}

func unknownDriver(id matrix.ReleaseID) error {
	return fault.Errorf(fault.Incompatible, "check manifests", id.String(),
		"update the operator to one that knows this driver", "driver %q is not known", id.Driver)
}

type renderer struct {
	in     *Input
	stages map[string]*Stage
	notes  []string
	// dropped are settings of an adopted installation.
	dropped []string
	cloud   *Cloud
	// narrowed is a fault of both drivers: nodes may be where they would no longer look.
	narrowed error
}

func (r *renderer) release(id matrix.ReleaseID) error {
	from := r.in.origin(id.Driver)
	s, err := load(from.Lock, from.Manifests, id)
	if err != nil {
		return err
	}
	if err := r.check(s, id); err != nil {
		return err
	}
	if err := r.customize(s); err != nil {
		return err
	}
	switch id.Driver {
	case matrix.CPI:
		err = r.renderCPI(s)
	case matrix.CSI:
		err = r.renderCSI(s)
	case matrix.SnapshotController:
		err = r.renderSnapshot(s)
	case matrix.CNI:
		for _, o := range s.objects {
			if p := r.in.Spec.StorageProvider; p != nil {
				moveKubelet(podSpec(o)["volumes"], p.KubeletPath()) // Antrea's agent knows the mounts by their paths
			}
			r.place(s, o)
		}
	}
	if err != nil {
		return err
	}
	r.constraints(s)
	return r.finish(s)
}

func (r *renderer) check(s *source, id matrix.ReleaseID) error {
	list, err := listOf(s.release, id, r.in.origin(id.Driver).Matrix)
	if err != nil {
		return fault.Join(s.lint(), fault.Errorf(fault.Refused, "check manifests", id.String(),
			"make the bundle again with a matrix that lists it: `vdo-bundle matrix add` makes the list from the manifests", "%w", err))
	}
	return fault.Join(s.lint(), s.judge(func(f *finding) { f.compare(list) }))
}

// finish makes the changes that apply to the objects of every driver.
func (r *renderer) finish(s *source) error {
	var errs []error
	for _, stage := range r.stages {
		for _, o := range stage.Objects {
			if o.Driver != s.driver {
				continue
			}
			errs = append(errs, r.pin(s, o.Unstructured))
			r.fit(o.Unstructured)
			label(s, o.Unstructured)
		}
	}
	return fault.Join(errs...)
}

// configuration adds an object with a driver's configuration.
func (r *renderer) configuration(s *source, o *unstructured.Unstructured) {
	added := r.add(s, StageConfig, o, Replace)
	if r.in.Keep[s.driver] {
		added.Config = ConfigData
	}
}

// placed has the stages of objects by driver and kind; the default is StageConfig.
var placed = map[matrix.Driver]map[string]string{
	matrix.CNI: {
		"CustomResourceDefinition": StageBase, "Namespace": StageBase,
		"Deployment": StageNode, "DaemonSet": StageNode, "APIService": StageNode, "Service": StageNode,
		"ValidatingWebhookConfiguration": StageNode, "MutatingWebhookConfiguration": StageNode,
	},
	matrix.CPI:                {"DaemonSet": StageNode},
	matrix.SnapshotController: {"CustomResourceDefinition": StageBase, "Deployment": StageSnapshot},
	matrix.CSI: {
		"Deployment": StageCSIController, "CSIDriver": StageCSIController, "Service": StageCSIController,
		"DaemonSet": StageCSINode,
	},
}

func (r *renderer) place(s *source, o *unstructured.Unstructured) *Object {
	return r.add(s, cmp.Or(placed[s.driver][o.GetKind()], StageConfig), o, Merge)
}

// add adds an object to a stage, with the wait for a workload or CRD. The result is valid until the next add.
func (r *renderer) add(s *source, stage string, o *unstructured.Unstructured, apply Strategy) *Object {
	kind := o.GetKind()
	st := r.stage(stage)
	st.Objects = append(st.Objects, Object{Unstructured: o, Driver: s.driver, Apply: apply})
	if !slices.Contains(st.Drivers, s.driver) {
		st.Drivers = append(st.Drivers, s.driver)
	}
	switch kind {
	case "CustomResourceDefinition":
		r.waitFor(stage, Wait{Kind: Established, Object: RefOf(o), Why: "what comes next uses its kind"})
	case "Deployment", "DaemonSet":
		if stage == StageSnapshot {
			break // the storage driver needs the CRDs, which exist, and not these pods, which start for 35 seconds
		}
		r.waitFor(stage, Wait{Kind: RolledOut, Object: RefOf(o), Why: "what comes next needs its pods"})
	}
	return &st.Objects[len(st.Objects)-1]
}

func (r *renderer) waitFor(stage string, w Wait) {
	st := r.stage(stage)
	st.Waits = append(st.Waits, w)
}

func (r *renderer) stage(name string) *Stage {
	if r.stages[name] == nil {
		r.stages[name] = &Stage{Name: name}
	}
	return r.stages[name]
}

func (r *renderer) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

// pullsFrom adds the pull secret to a namespace, once. If two drivers are there, the first in order of installation
// has it.
func (r *renderer) pullsFrom(s *source, namespace string) {
	for _, o := range r.stage(StageConfig).Objects {
		if o.GetKind() == "Secret" && o.GetNamespace() == namespace && o.GetName() == PullSecret {
			return
		}
	}
	o := secret(namespace, PullSecret, "kubernetes.io/dockerconfigjson", map[string][]byte{".dockerconfigjson": r.in.PullSecret})
	r.add(s, StageConfig, o, Replace)
	label(s, o)
}

func label(s *source, o *unstructured.Unstructured) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelManagedBy] = ManagedBy
	labels[LabelDriver] = string(s.driver)
	labels[LabelVersion] = strings.ReplaceAll(s.version.String(), "+", "_")
	o.SetLabels(labels)
}

var stageOrder = []string{
	StageBase, StageConfig, StageMirrors, StageNode, StageSnapshot,
	StageCSIController, StageCSINode, StageClasses, StageWebhookServer, StageWebhook,
}

// rendered sorts everything, and reports objects that two drivers have.
func (r *renderer) rendered() (*Rendered, error) {
	out := &Rendered{Notes: slices.Sorted(slices.Values(r.notes)), Dropped: slices.Sorted(slices.Values(r.dropped)), Cloud: r.cloud}
	owner := map[Ref]matrix.Driver{}
	var errs []error
	for _, name := range stageOrder {
		st := r.stages[name]
		if st == nil || len(st.Objects) == 0 {
			continue
		}
		slices.Sort(st.Drivers)
		slices.SortStableFunc(st.Objects, func(a, b Object) int {
			return compareRefs(RefOf(a.Unstructured), RefOf(b.Unstructured))
		})
		slices.SortStableFunc(st.Waits, func(a, b Wait) int {
			return cmp.Or(compareRefs(a.Object, b.Object), cmp.Compare(a.Kind, b.Kind))
		})
		for _, o := range st.Objects {
			ref := RefOf(o.Unstructured)
			if other, ok := owner[ref]; ok {
				errs = append(errs, fault.Errorf(fault.Conflict, "render drivers", ref.String(),
					"disable one of the two", "both %s and %s have it", other, o.Driver))
			}
			owner[ref] = o.Driver
		}
		out.Stages = append(out.Stages, *st)
	}
	if err := fault.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// kindOrder has kinds in the order of their dependencies; others come last.
var kindOrder = []string{
	"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role",
	"ClusterRoleBinding", "RoleBinding", "Secret", "ConfigMap", "Service", "CSIDriver", "StorageClass", "VolumeSnapshotClass",
	"Deployment", "DaemonSet", "APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
}

func compareRefs(a, b Ref) int {
	return cmp.Or(cmp.Compare(kindRank(a.Kind), kindRank(b.Kind)), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func kindRank(kind string) int {
	if i := slices.Index(kindOrder, kind); i >= 0 {
		return i
	}
	return len(kindOrder)
}
