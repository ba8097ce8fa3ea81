package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// serialsName is the ConfigMap with the highest matrix serials that were accepted, by
// the DriverBundle's name and by the repository, as decimal numbers. It belongs to no
// DriverBundle: one that is deleted and made again, or made under another name, does
// not open the way to older bundles.
const serialsName = "vdo-highest-serials"

// HighestSerial returns the highest matrix serial that was accepted for a DriverBundle
// of this name or of this reference's repository; 0 where there was none.
func (s *Store) HighestSerial(ctx context.Context, b *v1alpha1.DriverBundle) (int64, error) {
	cm, err := s.serials(ctx, b.Namespace)
	if err != nil {
		return 0, err
	}
	var highest int64
	for _, key := range serialKeys(b) {
		text, there := cm.Data[key]
		if !there {
			continue
		}
		serial, err := strconv.ParseInt(text, 10, 64)
		if err != nil || serial < 0 {
			return 0, serialsFault("read", b.Namespace, &fault.Error{
				Reason: fault.Corrupt, Err: fmt.Errorf("key %s is %q, which is not a serial", key, text), Hint: "correct it: what was accepted is in status.highestSerial of the DriverBundle",
			})
		}
		highest = max(highest, serial)
	}
	return highest, nil
}

// RecordSerial notes a serial that was accepted, where it is the highest. The ConfigMap
// is shared: what another DriverBundle's pass wrote meanwhile is kept.
func (s *Store) RecordSerial(ctx context.Context, b *v1alpha1.DriverBundle, serial int64) error {
	lost := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(retry.DefaultRetry, lost, func() error { return s.recordSerial(ctx, b, serial) })
}

func (s *Store) recordSerial(ctx context.Context, b *v1alpha1.DriverBundle, serial int64) error {
	cm, err := s.serials(ctx, b.Namespace)
	if err != nil {
		return err
	}
	changed := false
	for _, key := range serialKeys(b) {
		if was, err := strconv.ParseInt(cm.Data[key], 10, 64); err != nil || was < serial {
			cm.Data[key], changed = strconv.FormatInt(serial, 10), true
		}
	}
	switch {
	case !changed:
		return nil
	case cm.ResourceVersion == "":
		err = s.opts.Client.Create(ctx, cm)
	default:
		err = s.opts.Client.Update(ctx, cm)
	}
	if err != nil {
		return serialsFault("write", b.Namespace, err)
	}
	return nil
}

// serials reads the ConfigMap, or returns an empty one that was not made yet.
func (s *Store) serials(ctx context.Context, namespace string) (*corev1.ConfigMap, error) {
	var cm corev1.ConfigMap
	err := s.opts.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: serialsName}, &cm)
	if apierrors.IsNotFound(err) {
		cm = corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: serialsName, Labels: map[string]string{"app.kubernetes.io/part-of": managedBy}}}
		err = nil
	}
	if err != nil {
		return nil, serialsFault("read", namespace, err)
	}
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	return &cm, nil
}

// serialKeys are the keys of a DriverBundle's name and repository, short enough for a ConfigMap.
func serialKeys(b *v1alpha1.DriverBundle) []string {
	keys := []string{"name." + short(b.Name)}
	if ref, err := image.ParseReference(b.Spec.Reference); err == nil {
		keys = append(keys, "repository."+short(ref.Repository()))
	}
	return keys
}

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

func serialsFault(op, namespace string, err error) error {
	f := &fault.Error{
		Reason: fault.ReasonOf(err), Op: op + " the highest serials in", Subject: "ConfigMap " + namespace + "/" + serialsName, Err: err, Hint: fault.HintOf(err),
	}
	if apierrors.IsForbidden(err) {
		f.Reason, f.Hint = fault.Forbidden, "let the operator's Role create, update and delete ConfigMaps in its namespace"
	}
	return f
}
