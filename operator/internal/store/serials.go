package store

import (
	"context"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// HighestSerial returns the highest accepted matrix serial of a DriverBundle's repository, or 0.
func (s *Store) HighestSerial(ctx context.Context, b *v1alpha1.DriverBundle) (serial int64, err error) {
	err = s.withSerials(ctx, b, func(secret *corev1.Secret, key string) error {
		serial, err = serialOf(secret, key)
		return err
	})
	return serial, err
}

// RecordSerial stores an accepted serial if it is the highest. DriverBundles share the Secret, so each keeps the
// concurrent changes of others.
func (s *Store) RecordSerial(ctx context.Context, b *v1alpha1.DriverBundle, serial int64) error {
	if s.opts.InMemory {
		return nil
	}
	return s.withSerials(ctx, b, func(secret *corev1.Secret, key string) error {
		recorded, err := serialOf(secret, key)
		if err != nil || recorded >= serial {
			return err
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[key] = strconv.AppendInt(nil, serial, 10)
		if secret.ResourceVersion == "" {
			return s.opts.Client.Create(ctx, secret)
		}
		return s.opts.Client.Update(ctx, secret)
	})
}

// withSerials calls do with the Secret and the key of a DriverBundle's repository, and repeats it after a concurrent
// write. A missing Secret is a new one.
func (s *Store) withSerials(
	ctx context.Context, b *v1alpha1.DriverBundle, do func(secret *corev1.Secret, key string) error,
) error {
	ref, err := image.ParseReference(b.Spec.Reference)
	if err != nil {
		return nil //nolint:nilerr // nothing is accepted from there
	}
	key := serialPrefix + image.DigestOf([]byte(ref.Repository())).Hex()[:32]
	lost := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err = retry.OnError(retry.DefaultRetry, lost, func() error {
		secret := &corev1.Secret{Data: map[string][]byte{}}
		secret.Namespace, secret.Name = b.Namespace, v1alpha1.SerialsName
		secret.Labels = map[string]string{"app.kubernetes.io/part-of": managedBy}
		err := s.opts.Reader.Get(ctx, client.ObjectKeyFromObject(secret), secret)
		if apierrors.IsNotFound(err) {
			err = s.importSerials(ctx, secret)
		}
		if err != nil {
			return err
		}
		return do(secret, key)
	})
	if err == nil {
		return nil
	}
	f := fault.Errorf(fault.ReasonOf(err), "keep the highest serials in",
		"Secret "+b.Namespace+"/"+v1alpha1.SerialsName, fault.HintOf(err), "%w", err)
	switch hint := fault.AdmissionHint(err); {
	case hint != "":
		f.Reason, f.Hint = fault.Refused, hint
	case apierrors.IsForbidden(err):
		f.Reason, f.Hint = fault.Forbidden, "grant that account the permission; the RBAC manifests of this version grant the operator its own"
	}
	return f
}

const serialPrefix = "repository."

// importSerials fills a new Secret from the ConfigMaps of operators before v0.1, and then deletes them. To be
// dropped in v0.2.
func (s *Store) importSerials(ctx context.Context, secret *corev1.Secret) error {
	var imported []client.Object
	for _, name := range []string{v1alpha1.SerialsName, v1alpha1.SerialsName + "-copy"} {
		cm := &corev1.ConfigMap{}
		err := s.opts.Reader.Get(ctx, client.ObjectKey{Namespace: secret.Namespace, Name: name}, cm)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		imported = append(imported, cm)
		for key, text := range cm.Data {
			known, _ := serialOf(secret, key) //nolint:errcheck // only numbers are imported
			serial, err := strconv.ParseInt(text, 10, 64)
			if err == nil && serial > known && strings.HasPrefix(key, serialPrefix) {
				secret.Data[key] = []byte(text)
			}
		}
	}
	if len(imported) == 0 || s.opts.InMemory {
		return nil
	}
	if err := s.opts.Client.Create(ctx, secret); err != nil {
		return err
	}
	for _, cm := range imported {
		if err := client.IgnoreNotFound(s.opts.Client.Delete(ctx, cm)); err != nil {
			return err
		}
	}
	return nil
}

func serialOf(secret *corev1.Secret, key string) (int64, error) {
	text, ok := secret.Data[key]
	if !ok {
		return 0, nil
	}
	serial, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fault.Errorf(fault.Corrupt, "read", "key "+key, v1alpha1.ForgetSerials(secret.Namespace),
			"%.40q is not a serial", text)
	}
	return serial, nil
}
