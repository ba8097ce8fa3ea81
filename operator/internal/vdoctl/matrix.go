package vdoctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preview"
)

const matrixHelp = `Has the operator follow a bundle in the mirror, and with it the bundle's compatibility
matrix. A matrix is no file of its own here: it is signed as a part of the bundle that has
the drivers which it lists, so that nobody lowers what is trusted by exchanging it. The
bundle is verified as the operator does it before anything is changed; one that the
operator would refuse, for its signature or for an older matrix, is refused. What it would
mean for the drivers: vdoctl plan --bundle REFERENCE.

Of a matrix in a file, and of the earlier operator's JSON, it says with which commands it
becomes part of a bundle.`

type matrixOptions struct {
	*app
	outputFlags
	consentFlags
}

func newMatrixCommand(a *app) *cobra.Command {
	return groupOf("matrix", "Have the operator follow a bundle with another compatibility matrix",
		newMatrixSetCommand(a, "set", "Follow the bundle with a newer matrix"))
}

// newUpdateCommand is what the predecessor's command line called it.
func newUpdateCommand(a *app) *cobra.Command {
	cmd := groupOf("update", "As the earlier vdoctl had it: see matrix set", newMatrixSetCommand(a, "compatibility-matrix", "As the earlier vdoctl had it: see matrix set"))
	cmd.Hidden = true
	return cmd
}

func newMatrixSetCommand(a *app, name, short string) *cobra.Command {
	o := &matrixOptions{app: a}
	cmd := &cobra.Command{
		Use: name + " REFERENCE", Short: short, Long: matrixHelp,
		Example: "  vdoctl matrix set registry.site/vdo/drivers:2\n  vdoctl matrix set registry.site/vdo/drivers:2 --dry-run",
		Args:    flags.Exactly("REFERENCE"),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	o.consentFlags.bind(cmd)
	o.outputFlags.bind(cmd)
	return cmd
}

func (o *matrixOptions) run(ctx context.Context, src string) error {
	reference, err := o.reference(src)
	if err != nil {
		return err
	}
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	cfg, err := o.cluster.config()
	if err != nil {
		return err
	}
	config, err := theConfig(ctx, c, o.cluster.namespace)
	if err != nil {
		return err
	}
	was, would, err := preview.Candidate(ctx, preview.Options{Config: cfg, Namespace: o.cluster.namespace, Now: o.now, UserAgent: "vdoctl/" + o.build.Version}, config, reference)
	if err != nil {
		return asTyped(err, "REFERENCE")
	}
	out, err := o.follow(ctx, c, was, would)
	if err != nil {
		return err
	}
	return o.print(o.out, out, out.text)
}

// reference reads the argument; of what is no bundle in a registry it says how it becomes one.
func (o *matrixOptions) reference(src string) (string, error) {
	rest, isOCI := strings.CutPrefix(src, "oci://")
	web := strings.HasPrefix(src, "http://") || strings.HasPrefix(src, "https://")
	if _, err := os.Stat(src); !isOCI && (err == nil || web || isFile(src) || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(src))) {
		return "", o.explain(src, web)
	}
	ref, err := image.ParseHosted(rest)
	if err != nil {
		return "", flags.Bad("REFERENCE", src, err, "name a bundle in the mirror: registry.site/vdo/drivers:2")
	}
	return ref.String(), nil
}

// explain says how what is no bundle in a registry becomes a part of one.
func (o *matrixOptions) explain(src string, web bool) error {
	f := &fault.Error{Reason: fault.Refused, Op: "set the matrix from", Subject: src,
		Err: errors.New("the operator takes a matrix only as part of a bundle, by the bundle's signature"), Hint: commands("vdo-bundle matrix lint "+fault.Quote(src), src)}
	switch {
	case web:
		f.Err, f.Hint = errors.New("nothing is downloaded here: the operator takes a matrix only as part of a bundle in the mirror, by the bundle's signature"),
			"download it on a connected host; then "+commands("vdo-bundle matrix import matrix.json -o matrix.yaml", "matrix.yaml")
		return f
	case isBundle(src):
		f.Err, f.Hint = errors.New("the operator reads bundles from the mirror alone"), "`vdo-bundle push "+fault.Quote(src)+" REGISTRY/REPO:TAG`, then `vdoctl matrix set REGISTRY/REPO:TAG`"
		return f
	}
	data, err := o.readFlag("REFERENCE", src, bundle.MaxMatrixSize)
	if err != nil {
		return err
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		f.Hint = commands("vdo-bundle matrix import "+fault.Quote(src)+" -o matrix.yaml", "matrix.yaml")
		return f
	}
	doc, err := matrix.Parse(src, data)
	if err != nil {
		return err
	}
	f.Err = fmt.Errorf("the operator takes a matrix (this is serial %d) only as part of a bundle, by the bundle's signature", doc.Serial)
	return f
}

func isBundle(src string) bool {
	info, err := os.Stat(src)
	return strings.HasSuffix(src, ".tar") || strings.HasSuffix(src, ".parts") || err == nil && info.IsDir()
}

// commands lead from a matrix to a bundle that the operator follows.
func commands(first, file string) string {
	return "on a connected host `" + first + "`, `vdo-bundle matrix sign " + fault.Quote(file) + " --key KEY` and `vdo-bundle pull --matrix " + fault.Quote(file) +
		" --sign-key KEY -o drivers.tar`; then at the site `vdo-bundle push drivers.tar REGISTRY/REPO:TAG` and `vdoctl matrix set REGISTRY/REPO:TAG`"
}

// follow points the DriverBundle, or what it is made from, at the bundle that was verified.
func (o *matrixOptions) follow(ctx context.Context, c client.Client, was, would *v1alpha1.DriverBundle) (changed, error) {
	edits, err := edited(ctx, c, was, would.Spec.Reference)
	if err != nil {
		return changed{}, err
	}
	out := changed{Object: describeObject(was), Changes: []string{}, DryRun: o.dryRun, Message: "it follows that bundle already: " + matrixOf(would)}
	if len(edits) == 0 {
		return out, nil
	}
	for _, x := range edits {
		out.Object, out.Changes = describeObject(x.after), append(out.Changes, x.changes...)
	}
	out.Changes = append(out.Changes, matrixMoves(was, would))
	out.Message = "watch it with `vdoctl status --watch`"
	if !o.dryRun {
		if err := o.askFirst(ctx, out); err != nil {
			return out, err
		}
	}
	for _, x := range edits {
		if err := c.Patch(ctx, x.after, x.patch, dryRunPatch(o.dryRun)...); err != nil {
			return out, clusterFault("have the operator follow "+would.Spec.Reference, err)
		}
	}
	return out, nil
}

func (o *matrixOptions) askFirst(ctx context.Context, out changed) error {
	if !o.yes {
		l := &lines{w: o.err}
		for _, line := range out.Changes {
			l.printf("%s: %s", out.Object, line)
		}
	}
	return o.consent(ctx, o.consentFlags, "Have the operator follow that bundle"+o.cluster.named()+"?")
}

// edit changes a resource.
type edit struct {
	after   client.Object
	patch   client.Patch
	changes []string
}

// asRead is a patch of what is still as it was read.
func asRead(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

// edited are the resources that change where another bundle is followed: the DriverBundle, or what
// it accepts and then the predecessor's resource that it is made from.
func edited(ctx context.Context, c client.Reader, b *v1alpha1.DriverBundle, reference string) ([]edit, error) {
	after, owner := b.DeepCopy(), metav1.GetControllerOf(b)
	if owner == nil {
		after.Spec.Reference, after.Spec.Versions = reference, "" // versions would choose another tag
		changes := slices.Concat(differs("spec.reference", b.Spec.Reference, reference), differs("spec.versions", b.Spec.Versions, ""))
		return changing(edit{after, asRead(b), changes}), nil
	}
	made, err := editedLegacy(ctx, c, b.Namespace, owner, "oci://"+reference)
	if err != nil {
		return nil, err
	}
	// The operator may write the status meanwhile: a consent does not depend on that.
	return changing(edit{after, client.MergeFrom(b), accept(after, reference)}, made), nil
}

// changing are those that change something.
func changing(all ...edit) []edit {
	return slices.DeleteFunc(all, func(x edit) bool { return len(x.changes) == 0 })
}

// accept consents to another repository, without which the operator keeps the DriverBundle's own.
func accept(b *v1alpha1.DriverBundle, reference string) []string {
	was, none := image.ParseReference(b.Spec.Reference)
	is, err := image.ParseReference(reference)
	if none != nil || err != nil || is.Repository() == was.Repository() {
		return nil
	}
	const key = v1alpha1.AnnotationAcceptRepository
	accepted := b.Annotations[key]
	metav1.SetMetaDataAnnotation(&b.ObjectMeta, key, is.Repository())
	return differs(key+" of the DriverBundle", accepted, is.Repository())
}

// legacyURL is the key of the predecessor's ConfigMap that says where the matrix is.
const legacyURL = "versionConfigURL"

// editedLegacy is the predecessor's resource with another URL in it.
func editedLegacy(ctx context.Context, c client.Reader, namespace string, owner *metav1.OwnerReference, url string) (edit, error) {
	key := client.ObjectKey{Namespace: namespace, Name: owner.Name}
	unread := func(err error) (edit, error) {
		return edit{}, clusterFault("read "+owner.Kind+" "+owner.Name, err)
	}
	switch owner.Kind {
	case "ConfigMap":
		var m corev1.ConfigMap
		if err := c.Get(ctx, key, &m); err != nil {
			return unread(err)
		}
		after := m.DeepCopy()
		if after.Data == nil {
			after.Data = map[string]string{}
		}
		after.Data[legacyURL] = url
		return edit{after, asRead(&m), differs(legacyURL, m.Data[legacyURL], url)}, nil
	case "CompatibilityConfig":
		var m v1alpha1.CompatibilityConfig
		if err := c.Get(ctx, key, &m); err != nil {
			return unread(err)
		}
		after := m.DeepCopy()
		after.Spec.MatrixURL = url
		return edit{after, asRead(&m), differs("spec.matrixURL", m.Spec.MatrixURL, url)}, nil
	}
	return edit{}, &fault.Error{Reason: fault.Conflict, Op: "change", Subject: "the DriverBundle of " + owner.Kind + " " + owner.Name,
		Err: errors.New("it is made by something else"), Hint: "change it there"}
}

// differs says that a field changes; nothing where it does not.
func differs(field, from, to string) []string {
	if from == to {
		return nil
	}
	return []string{field + ": " + dash(from) + " -> " + dash(to)}
}

// matrixMoves is "matrix: serial 1 -> serial 2, expires 2028-11-21, signed by a".
func matrixMoves(was, would *v1alpha1.DriverBundle) string {
	from := "-"
	if m := was.Status.Matrix; m != nil {
		from = fmt.Sprintf("serial %d", m.Serial)
	}
	return "matrix: " + from + " -> " + matrixOf(would)
}

func matrixOf(b *v1alpha1.DriverBundle) string {
	text := "signed by " + strings.Join(b.Status.VerifiedBy, " and ")
	if m := b.Status.Matrix; m != nil {
		text = fmt.Sprintf("serial %d, expires %s, ", m.Serial, m.Expires.UTC().Format(time.DateOnly)) + text
	}
	return text
}
