package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/anew"
)

// serialsNames are the ConfigMaps with the highest matrix serials that were accepted, by
// the DriverBundle's name and by the repository, as decimal numbers. They belong to no
// DriverBundle: one that is deleted and made again, or made under another name, does
// not open the way to older bundles. There are two, of which the higher number counts, so
// that one that somebody has made immutable can be made anew.
var serialsNames = []string{"vdo-highest-serials", "vdo-highest-serials-copy"}

// HighestSerial returns the highest matrix serial that was accepted for a DriverBundle
// of this name or of this reference's repository; 0 where there was none.
func (s *Store) HighestSerial(ctx context.Context, b *v1alpha1.DriverBundle) (int64, error) {
	both, err := s.serials(ctx, b.Namespace)
	if err != nil {
		return 0, err
	}
	var highest int64
	for _, cm := range both {
		for _, key := range serialKeys(b) {
			text, there := cm.Data[key]
			if !there {
				continue
			}
			serial, err := strconv.ParseInt(text, 10, 64)
			if err != nil || serial < 0 {
				return 0, serialsFault("read", cm, &fault.Error{
					Reason: fault.Corrupt, Err: fmt.Errorf("key %s is %q, which is not a serial", key, text), Hint: "correct it: what was accepted is in status.highestSerial of the DriverBundle",
				})
			}
			highest = max(highest, serial)
		}
	}
	return highest, nil
}

// RecordSerial notes a serial that was accepted, where it is the highest. The ConfigMaps
// are shared: what another DriverBundle's pass wrote meanwhile is kept.
func (s *Store) RecordSerial(ctx context.Context, b *v1alpha1.DriverBundle, serial int64) error {
	lost := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(retry.DefaultRetry, lost, func() error { return s.recordSerial(ctx, b, serial) })
}

func (s *Store) recordSerial(ctx context.Context, b *v1alpha1.DriverBundle, serial int64) error {
	both, err := s.serials(ctx, b.Namespace)
	if err != nil {
		return err
	}
	all := map[string]string{}
	for _, cm := range both {
		for key, text := range cm.Data {
			raise(all, key, text)
		}
	}
	for _, key := range serialKeys(b) {
		raise(all, key, strconv.FormatInt(serial, 10))
	}
	// what cannot be changed last: all that it says is in the other one when it is deleted
	slices.SortStableFunc(both, func(a, b *corev1.ConfigMap) int { return cmp.Compare(fixed(a), fixed(b)) })
	for _, cm := range both {
		if err := s.writeSerials(ctx, cm, all); err != nil {
			return serialsFault("write", cm, err)
		}
	}
	return nil
}

// raise puts a serial in where it is higher. What is no number stays where nothing is better: it
// is told when it is read.
func raise(all map[string]string, key, text string) {
	was, err := strconv.ParseInt(all[key], 10, 64)
	if is, bad := strconv.ParseInt(text, 10, 64); all[key] == "" || (bad == nil && (err != nil || was < is)) {
		all[key] = text
	}
}

// fixed is 1 of a ConfigMap whose data cannot be changed.
func fixed(cm *corev1.ConfigMap) int {
	if cm.Immutable != nil && *cm.Immutable {
		return 1
	}
	return 0
}

func (s *Store) writeSerials(ctx context.Context, cm *corev1.ConfigMap, data map[string]string) error {
	if maps.Equal(cm.Data, data) {
		return nil
	}
	next := emptySerials(client.ObjectKeyFromObject(cm))
	next.Data = data
	switch {
	case cm.ResourceVersion == "":
		return s.opts.Client.Create(ctx, next)
	case fixed(cm) > 0:
		return anew.Make(ctx, s.opts.Client, s.opts.Reader, cm, func() error { return s.opts.Client.Create(ctx, next) })
	}
	cm.Data = data
	return s.opts.Client.Update(ctx, cm)
}

// serials reads the ConfigMaps; in the place of one that was not made yet it is an empty one.
func (s *Store) serials(ctx context.Context, namespace string) ([]*corev1.ConfigMap, error) {
	var both []*corev1.ConfigMap
	for _, name := range serialsNames {
		cm, key := &corev1.ConfigMap{}, client.ObjectKey{Namespace: namespace, Name: name}
		err := s.opts.Reader.Get(ctx, key, cm)
		if apierrors.IsNotFound(err) {
			cm, err = emptySerials(key), nil
		}
		if err != nil {
			return nil, serialsFault("read", emptySerials(key), err)
		}
		both = append(both, cm)
	}
	return both, nil
}

func emptySerials(key client.ObjectKey) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{"app.kubernetes.io/part-of": managedBy}}}
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

func serialsFault(op string, cm *corev1.ConfigMap, err error) error {
	f := &fault.Error{
		Reason: fault.ReasonOf(err), Op: op + " the highest serials in", Subject: "ConfigMap " + cm.Namespace + "/" + cm.Name, Err: err, Hint: fault.HintOf(err),
	}
	if apierrors.IsForbidden(err) {
		f.Reason, f.Hint = fault.Forbidden, "let the operator's Role create, update and delete ConfigMaps in its namespace"
	}
	return f
}
