package preview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/driverbundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
)

// operatorName is that of the operator's Deployment.
const operatorName = "vdo-operator"

// started is how the operator was started, as far as it decides on bundles.
type started struct {
	floor     *trust.Policy
	floorID   string
	plainHTTP []string
}

// howStarted reads it from the operator's Deployment. One that does not run in the cluster has
// no floor that could be known here: then none is there.
func howStarted(ctx context.Context, c client.Reader, namespace string) (started, error) {
	var d appsv1.Deployment
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: operatorName}, &d)
	if apierrors.IsNotFound(err) {
		return started{}, nil
	}
	if err != nil {
		return started{}, clusterstate.Fault("read how the operator was started", err)
	}
	pod := &d.Spec.Template.Spec
	for i := range pod.Containers {
		s, floor := argumentsOf(&pod.Containers[i])
		if floor != "" {
			f := files{ctx: ctx, reader: c, namespace: namespace, pod: pod, container: &pod.Containers[i]}
			if s.floor, s.floorID, err = driverbundle.ReadFloor(floor, f.read); err != nil {
				return s, err
			}
		}
		if floor != "" || len(s.plainHTTP) > 0 {
			return s, nil
		}
	}
	return started{}, nil
}

// argumentsOf reads those of the operator's arguments that count.
func argumentsOf(c *corev1.Container) (s started, floor string) {
	fl := pflag.NewFlagSet(operatorName, pflag.ContinueOnError)
	fl.SetOutput(io.Discard)
	fl.ParseErrorsAllowlist.UnknownFlags = true
	fl.StringVar(&floor, "trust-floor", "", "")
	fl.StringArrayVar(&s.plainHTTP, "plain-http", nil, "")
	_ = fl.Parse(append(append([]string{}, c.Command...), c.Args...)) //nolint:errcheck // what is not known is passed over
	return s, floor
}

// files are those that a container sees, as far as they are of ConfigMaps and Secrets.
type files struct {
	ctx       context.Context //nolint:containedctx // of one read of a policy, whose parser hands none on
	reader    client.Reader
	namespace string
	pod       *corev1.PodSpec
	container *corev1.Container
}

func (f files) read(name string) ([]byte, error) {
	unread := func(err error) ([]byte, error) {
		return nil, &fault.Error{Reason: fault.Refused, Op: "read the operator's --trust-floor", Subject: name, Err: err,
			Hint: "mount it from a ConfigMap or a Secret that you may read"}
	}
	mount, below, found := f.mountOf(name)
	if !found {
		return unread(errors.New("nothing is mounted there that can be read from here"))
	}
	for _, v := range f.pod.Volumes {
		if v.Name != mount.Name {
			continue
		}
		ref, key := keyOf(v.VolumeSource, below)
		if ref == (v1alpha1.KeyReference{}) {
			return unread(fmt.Errorf("volume %s is neither of a ConfigMap nor of a Secret", v.Name))
		}
		read, err := source.Key(f.ctx, f.reader, source.Wanted{Namespace: f.namespace, Ref: ref, Default: key})
		if err != nil {
			return unread(err)
		}
		return read.Bytes, nil
	}
	return unread(fmt.Errorf("there is no volume %s", mount.Name))
}

// mountOf is the mount that a file is in, and its name below the volume.
func (f files) mountOf(name string) (mount corev1.VolumeMount, below string, found bool) {
	for _, m := range f.container.VolumeMounts {
		rest, inside := strings.CutPrefix(path.Clean(name), path.Clean(m.MountPath))
		if inside && (rest == "" || strings.HasPrefix(rest, "/")) && (!found || len(m.MountPath) > len(mount.MountPath)) {
			mount, below, found = m, strings.TrimPrefix(path.Join(m.SubPath, rest), "/"), true
		}
	}
	return mount, below, found
}

// keyOf is what a file below a volume is of.
func keyOf(v corev1.VolumeSource, below string) (ref v1alpha1.KeyReference, key string) {
	var items []corev1.KeyToPath
	switch {
	case v.ConfigMap != nil:
		ref.ConfigMap, items = v.ConfigMap.Name, v.ConfigMap.Items
	case v.Secret != nil:
		ref.Secret, items = v.Secret.SecretName, v.Secret.Items
	}
	for _, i := range items {
		if i.Path == below {
			return ref, i.Key
		}
	}
	return ref, below
}
