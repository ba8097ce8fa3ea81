package vspherecloudconfig

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
)

// Past reads earlier logins from the statuses of a namespace. It reads the account from the Secret if that still has
// the version used, so a changed Secret gates no account. It reads no Secret without refusals or lost answers.
func Past(reader client.Reader, namespace string) func(context.Context) ([]logins.Past, error) {
	return func(ctx context.Context) ([]logins.Past, error) {
		var list v1alpha1.VsphereCloudConfigList
		if err := reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(list.Items, func(v v1alpha1.VsphereCloudConfig) bool {
			return refused(v.Status.Conditions) || v.Status.AskedWith != ""
		}) {
			return nil, nil
		}
		var all []logins.Past
		var unread error
		for i := range list.Items {
			in, err := observe(ctx, reader, &list.Items[i])
			switch {
			case condition.Passing(err):
				unread = errors.Join(unread, err)
			case err == nil: // otherwise the current content was never tried
				all = append(all, past(&list.Items[i], in)...)
			}
		}
		return all, unread
	}
}

// past returns the logins that one status records for the current Secret and CA.
func past(vcc *v1alpha1.VsphereCloudConfig, in inputs) (all []logins.Past) {
	st, q := &vcc.Status, question(vcc, in)
	q.Pass = st.HandledReconcileAt
	if st.AskedAt != nil && st.AskedWith == askedWith(vcc, in.version) {
		all = append(all, logins.Past{Question: q, At: st.AskedAt.Time, Err: logins.ErrLost})
	}
	ready := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil, ready.ObservedGeneration != vcc.Generation, st.CheckedAt == nil, st.CredentialsVersion != in.version: // of another state
	case refused(st.Conditions):
		all = append(all, logins.Past{Question: q, At: st.CheckedAt.Time,
			Err: &fault.Error{Reason: fault.Reason(ready.Reason), Err: errors.New(ready.Message)}})
	case st.Config == configVerified:
		all = append(all, logins.Past{Question: q, At: st.CheckedAt.Time})
	}
	return all
}
