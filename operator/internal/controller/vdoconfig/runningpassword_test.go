package vdoconfig_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// The password is a new one that nobody is let in with, the drivers run with the one before, and
// no bundle can be read that a plan could be made from: what a pod writes is shown without either.
func TestThePasswordThatDriversRunWithIsHiddenWithoutABundle(t *testing.T) {
	w, v := installed(t)
	becomes := func(password string, status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		secret := get(w, &corev1.Secret{}, w.ns, "vc-one-creds")
		w.change(secret, func() { secret.Data["password"] = []byte(password) })
		w.checked(get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one"), status, reason, message)
	}
	becomes("Tr0ub4dor", metav1.ConditionTrue, "Succeeded", "")
	w.ready(v)

	pod := w.nodePodOn("worker-1")
	t.Cleanup(func() { require.NoError(t, w.Delete(context.Background(), pod)) })
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, RestartCount: 5, Image: "x", ImageID: "x",
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "the vCenter refuses Tr0ub4dor as it does staple"}},
	}}
	require.NoError(t, w.Status().Update(t.Context(), pod))
	becomes("staple", metav1.ConditionFalse, "Unauthorized", "the vCenter refuses the login")
	hidden := func() {
		t.Helper()
		w.look(v)
		require.Contains(t, describe(v), "the vCenter refuses (hidden) as it does (hidden)")
	}
	hidden()

	w.store.contents, w.store.err = nil, errBroken
	hidden()
}
