package vdoctl

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
)

const matrixHelp = `Verifies a bundle in the mirror as the operator does, and makes the operator follow that bundle
with its compatibility matrix. To see the effect before: vdoctl plan --bundle REFERENCE. It
refuses a matrix file; its hint has the commands that put the file into a bundle.`

type matrixOptions struct {
	*app
	consentFlags
}

func newMatrixSetCommand(a *app, name string) *cobra.Command {
	o := &matrixOptions{app: a}
	cmd := &cobra.Command{
		Use: name + " REFERENCE", Short: "Follow the bundle with a newer matrix", Long: matrixHelp,
		Example: "  vdoctl matrix set registry.site/vdo/drivers:2\n  vdoctl matrix set registry.site/vdo/drivers:2 --dry-run",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	o.consentFlags.bind(cmd)
	o.bindFormat(cmd)
	return cmd
}

func (o *matrixOptions) run(ctx context.Context, src string) error {
	reference, err := o.reference(src)
	if err != nil {
		return err
	}
	c, config, err := o.theConfig(ctx)
	if err != nil {
		return err
	}
	as, err := o.previewing(ctx)
	if err != nil {
		return err
	}
	was, would, err := as.Candidate(ctx, config, reference)
	if err != nil {
		return err
	}
	out, err := o.follow(ctx, c, was, would)
	if err != nil {
		return err
	}
	return o.print(out, out.text)
}

// reference parses the argument. For a matrix or a bundle in a file, it returns how to get that into the mirror.
func (o *matrixOptions) reference(src string) (string, error) {
	_, err := os.Stat(src)
	web := strings.HasPrefix(src, "http://") || strings.HasPrefix(src, "https://")
	if (err == nil || web || isFile(src)) && !isBundle(src) {
		return "", fault.Errorf(fault.Refused, "set the matrix from", src,
			"on a connected host `vdo-bundle matrix sign matrix.yaml --key KEY` and `vdo-bundle pull --matrix matrix.yaml "+
				"--sign-key KEY -o drivers.tar`; then at the site `vdo-bundle push drivers.tar REGISTRY/REPO:TAG` and "+
				"`vdoctl matrix set REGISTRY/REPO:TAG`; releases of the earlier operator's JSON first: `vdo-bundle matrix add`",
			"the operator takes a matrix only as part of a bundle in the mirror, by the bundle's signature")
	}
	ref, err := inMirror("REFERENCE", strings.TrimPrefix(src, "oci://"), pushFirst)
	return ref.String(), err
}

// follow points the DriverBundle, or its source, at the verified bundle.
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
		out.Object, out.Changes = describeObject(x.after), append(out.Changes, x.changes()...)
	}
	moves := "matrix: -"
	if m := was.Status.Matrix; m != nil {
		moves = fmt.Sprintf("matrix: serial %d", m.Serial)
	}
	moves += " -> " + matrixOf(would)
	out.Changes = append(out.Changes, moves)
	out.Message = "watch it with `vdoctl status --watch`"
	question := "Have the operator follow that bundle, with " + moves + o.cluster.named() + "?"
	op := "have the operator follow " + would.Spec.Reference
	return out, o.edit(ctx, c, o.consentFlags, op, question, edits)
}

// edited returns the resources to change for another bundle: the DriverBundle. If that is created from the earlier
// operator's resource, they are its accepted repository and then that resource.
func edited(ctx context.Context, c client.Reader, b *v1alpha1.DriverBundle, reference string) ([]edit, error) {
	x, owner := asRead(b.DeepCopy()), metav1.GetControllerOf(b)
	after := x.after.(*v1alpha1.DriverBundle) //nolint:forcetypeassert,errcheck // a copy of one
	if owner == nil {
		after.Spec.Reference, after.Spec.Versions = reference, "" // versions would choose another tag
		return changing(x), nil
	}
	made, err := editedLegacy(ctx, c, b.Namespace, owner, "oci://"+reference)
	if err != nil {
		return nil, err
	}
	accept(after, reference)
	return changing(x, made), nil
}

// accept consents to another repository; otherwise the operator keeps the DriverBundle's own.
func accept(b *v1alpha1.DriverBundle, reference string) {
	was, none := image.ParseReference(b.Spec.Reference)
	is, err := image.ParseReference(reference)
	if none == nil && err == nil && is.Repository() != was.Repository() {
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, v1alpha1.AnnotationAcceptRepository, is.Repository())
	}
}

// legacyURL is the key of the matrix's URL in the earlier operator's ConfigMap.
const legacyURL = "versionConfigURL"

func editedLegacy(ctx context.Context, c client.Reader, namespace string, owner *metav1.OwnerReference, url string) (edit, error) {
	config, compat := &corev1.ConfigMap{}, &v1alpha1.CompatibilityConfig{}
	read := map[string]client.Object{"ConfigMap": config, "CompatibilityConfig": compat}[owner.Kind]
	if read == nil {
		return edit{}, fault.Errorf(fault.Conflict, "change", "the DriverBundle of "+owner.Kind+" "+owner.Name,
			"change it there", "it is made by something else")
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: owner.Name}, read); err != nil {
		return edit{}, clusterstate.Fault("read "+owner.Kind+" "+owner.Name, err)
	}
	x := asRead(read)
	if read == client.Object(compat) {
		compat.Spec.MatrixURL = url
		return x, nil
	}
	if config.Data == nil {
		config.Data = map[string]string{}
	}
	config.Data[legacyURL] = url
	return x, nil
}

func matrixOf(b *v1alpha1.DriverBundle) string {
	text := "signed by " + strings.Join(b.Status.VerifiedBy, " and ")
	if m := b.Status.Matrix; m != nil {
		text = fmt.Sprintf("serial %d, expires %s, ", m.Serial, m.Expires.UTC().Format(time.DateOnly)) + text
	}
	return text
}
