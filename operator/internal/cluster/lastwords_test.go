package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// kubelet answers questions for logs, as the API server asks them.
type kubelet struct {
	mu     sync.Mutex
	answer func(w http.ResponseWriter, container string)
	asked  []string
}

func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, r.URL.Path+"?"+r.URL.RawQuery)
	k.answer(w, r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
}

// fallen makes a node with that kubelet, and on it the storage driver's node plugin with
// two pods, both containers of which fall over.
func fallen(t *testing.T, k client.Client, server *httptest.Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	create := func(o client.Object) {
		require.NoError(t, client.IgnoreAlreadyExists(k.Create(ctx, o)))
		t.Cleanup(func() { _ = k.Delete(ctx, o, client.GracePeriodSeconds(0)) })
	}
	require.NoError(t, client.IgnoreAlreadyExists(k.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "vmware-system-csi"}})))
	require.NoError(t, client.IgnoreAlreadyExists(k.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: "default"}})))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	create(n)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	require.NoError(t, k.Status().Update(ctx, n))
	labels := map[string]string{"app": "vsphere-csi-node"}
	containers := []corev1.Container{{Name: "vsphere-csi-node", Image: "x"}, {Name: "node-driver-registrar", Image: "x"}}
	create(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: "vsphere-csi-node"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: containers}}}})
	for _, name := range []string{"p2", "p1"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: "n1", Containers: containers}}
		create(p)
		for _, c := range containers {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}})
		}
		require.NoError(t, k.Status().Update(ctx, p))
	}
}

// said are the findings about the storage driver's containers.
func said(t *testing.T, c *edge.Cluster) string {
	t.Helper()
	o, err := c.Observe(ctx)
	require.NoError(t, err)
	rep := assess.Assess(assess.Input{Observed: o, Now: time.Now(), Wanted: []matrix.Driver{matrix.CSI}})
	var all []string
	for _, f := range rep.Drivers[matrix.CSI].Findings {
		all = append(all, fmt.Sprintf("%s | %s | %s", f.Reason, f.Message, f.Remedy))
	}
	return strings.Join(all, "\n")
}

// The log of a container that falls over and leaves no message tells why, read by the
// API server from the node's kubelet, once for each container whatever the number of pods.
func TestLastWordsAreReadFromTheLog(t *testing.T) {
	const canary = "Canary-6"
	c, k, _ := start(t)
	node := &kubelet{answer: func(w http.ResponseWriter, container string) {
		if container == "vsphere-csi-node" {
			_, _ = w.Write([]byte("I1122 10:11:12.1       1 a.go:1] hello\nE1122 10:11:12.2       1 a.go:2] password=" + canary + ": ServerFaultCode: Cannot complete login due to an incorrect user name or password.\nI1122 10:11:12.3       1 a.go:3] bye\n"))
			return
		}
		_, _ = w.Write([]byte("F1122 10:11:12.1       1 main.go:9] the socket is in use\n"))
	}}
	server := httptest.NewTLSServer(node)
	defer server.Close()
	fallen(t, k, server)
	require.Contains(t, said(t, c), "exit code 1", "without a reader")
	require.Empty(t, node.asked)

	read, err := edge.Logs(cluster.Config(t), http.DefaultClient)
	require.NoError(t, err)
	_, err = read(ctx, "vmware-system-csi", "nobody", "x")
	require.Error(t, err)
	h, err := rest.HTTPClientFor(cluster.Config(t))
	require.NoError(t, err)
	c.Log, err = edge.Logs(cluster.Config(t), h)
	require.NoError(t, err)
	got := said(t, c)
	require.Contains(t, got, "Unauthorized | container vsphere-csi-node ends again and again on node n1: password (hidden): Cannot complete login")
	require.Contains(t, got, "correct user and password")
	require.Contains(t, got, "container node-driver-registrar ends again and again on node n1: the socket is in use")
	require.NotContains(t, got, canary)
	require.ElementsMatch(t, []string{
		"/containerLogs/vmware-system-csi/p1/vsphere-csi-node?previous=true&tailLines=20",
		"/containerLogs/vmware-system-csi/p1/node-driver-registrar?previous=true&tailLines=20"}, node.asked)

	node.answer = func(w http.ResponseWriter, _ string) {
		for range 100 << 10 { // 100 MiB, were it read
			if _, err := w.Write([]byte(strings.Repeat("x", 1<<10))); err != nil {
				return
			}
		}
	}
	require.LessOrEqual(t, len(said(t, c)), 4<<10)

	// What cannot be read, as where a right is missing, or a kubelet is silent, is no fault.
	for name, log := range map[string]func(context.Context) (string, error){
		"an error": func(context.Context) (string, error) { return "", errors.New("forbidden") },
		"nothing":  func(context.Context) (string, error) { return "", nil },
		"silence":  func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() },
	} {
		c.Log = func(ctx context.Context, _, _, _ string) (string, error) { return log(ctx) }
		began := time.Now()
		require.Contains(t, said(t, c), "exit code 1", name)
		require.Less(t, time.Since(began), 20*time.Second, name)
	}
}
