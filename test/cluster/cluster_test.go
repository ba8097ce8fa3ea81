package cluster_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

func TestMain(m *testing.M) { cluster.Main(m) }

func eventually(t *testing.T, what string, ok func(ctx context.Context) (bool, error)) {
	t.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, time.Minute, true, ok)
	require.NoError(t, err, what)
}

func TestDaemonSetRollsOutOnNodesAndSurvivesAnUpgrade(t *testing.T) {
	ctx := context.Background()
	c := cluster.New(t, cluster.Options{Nodes: cluster.DefaultNodes()})
	client := kubernetes.NewForConfigOrDie(c.Config())

	version, err := client.Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, "v"+toolchain.FirstKubernetes, version.GitVersion)

	labels := map[string]string{"app": "x"}
	ds, err := client.AppsV1().DaemonSets("kube-system").Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "x"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers:  []corev1.Container{{Name: "x", Image: "mirror.test/x:1"}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "DaemonSet ready on three nodes", func(ctx context.Context) (bool, error) {
		got, err := client.AppsV1().DaemonSets("kube-system").Get(ctx, ds.Name, metav1.GetOptions{})
		return err == nil && got.Status.NumberReady == 3, err
	})

	require.NoError(t, c.Upgrade(ctx, toolchain.NextKubernetes))
	version, err = client.Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, "v"+toolchain.NextKubernetes, version.GitVersion)
	_, err = client.AppsV1().DaemonSets("kube-system").Get(ctx, ds.Name, metav1.GetOptions{})
	require.NoError(t, err, "data survive")

	// The controllers go on with the new API server.
	_, err = client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "y"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers:  []corev1.Container{{Name: "x", Image: "mirror.test/x:1"}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "Deployment ready", func(ctx context.Context) (bool, error) {
		got, err := client.AppsV1().Deployments("default").Get(ctx, "y", metav1.GetOptions{})
		return err == nil && got.Status.ReadyReplicas == 2, err
	})
}

func TestSharedAPIServerHasTheCRDs(t *testing.T) {
	cfg := cluster.Config(t)
	ns := cluster.Namespace(t, cfg)
	client := kubernetes.NewForConfigOrDie(cfg)
	_, err := client.CoreV1().Namespaces().Get(context.Background(), ns, metav1.GetOptions{})
	require.NoError(t, err)
	resources, err := client.Discovery().ServerResourcesForGroupVersion("vdo.vmware.com/v1alpha1")
	require.NoError(t, err)
	require.NotEmpty(t, resources.APIResources)
}

func TestStopLeavesNothing(t *testing.T) {
	c, err := cluster.Start(context.Background(), cluster.Options{})
	require.NoError(t, err)
	_, err = clientcmd.LoadFromFile(c.Kubeconfig())
	require.NoError(t, err)
	c.Stop()
	_, err = os.Stat(c.Kubeconfig())
	require.ErrorIs(t, err, os.ErrNotExist)
}
