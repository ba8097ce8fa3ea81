package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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
)

// logs are those of containers, as the API server answers questions for them.
type logs struct {
	mu     sync.Mutex
	answer func(w http.ResponseWriter, container string)
	asked  []string
}

func (l *logs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, r.URL.Path+"?"+r.URL.Query().Encode())
	l.answer(w, r.URL.Query().Get("container"))
}

// fallen makes the storage driver's node plugin with two pods, both containers of which fall over.
func fallen(t *testing.T, k client.Client) {
	t.Helper()
	create := func(o client.Object) {
		require.NoError(t, client.IgnoreAlreadyExists(k.Create(ctx, o)))
		t.Cleanup(func() { _ = k.Delete(ctx, o, client.GracePeriodSeconds(0)) })
	}
	require.NoError(t, client.IgnoreAlreadyExists(k.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "vmware-system-csi"}})))
	require.NoError(t, client.IgnoreAlreadyExists(k.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: "default"}})))
	create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
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

func said(t *testing.T, c *edge.Cluster) string {
	t.Helper()
	o, err := c.Observe(ctx)
	require.NoError(t, err)
	rep := assess.Assess(assess.Input{Observed: o, Now: time.Now(), Requested: []matrix.Driver{matrix.CSI}})
	var all []string
	for _, f := range rep.Drivers[matrix.CSI].Findings {
		all = append(all, fmt.Sprintf("%s | %s | %s", f.Reason, f.Message, f.Remedy))
	}
	return strings.Join(all, "\n")
}

// The log of a container that falls over and leaves no message tells why, read from the API server
// once for each container whatever the number of pods.
func TestLastWordsAreReadFromTheLog(t *testing.T) {
	const canary = "Canary-6"
	c, k, _ := start(t)
	node := &logs{answer: func(w http.ResponseWriter, container string) {
		if container == "vsphere-csi-node" {
			_, _ = w.Write([]byte("I1122 10:11:12.1       1 a.go:1] hello\nE1122 10:11:12.2       1 a.go:2] password=" + canary + ": ServerFaultCode: Cannot complete login due to an incorrect user name or password.\nI1122 10:11:12.3       1 a.go:3] bye\n"))
			return
		}
		_, _ = w.Write([]byte("F1122 10:11:12.1       1 main.go:9] the socket is in use\n"))
	}}
	server := httptest.NewServer(node)
	defer server.Close()
	fallen(t, k)
	require.Contains(t, said(t, c), "exit code 1", "without a reader")
	require.Empty(t, node.asked)

	var err error
	c.Log, err = edge.Logs(&rest.Config{Host: server.URL}, http.DefaultClient)
	require.NoError(t, err)
	got := said(t, c)
	require.Contains(t, got, "Unauthorized | container vsphere-csi-node ends again and again on node n1: password (hidden): Cannot complete login")
	require.Contains(t, got, "correct user and password")
	require.Contains(t, got, "container node-driver-registrar ends again and again on node n1: the socket is in use")
	require.NotContains(t, got, canary)
	require.ElementsMatch(t, []string{
		"/api/v1/namespaces/vmware-system-csi/pods/p1/log?container=vsphere-csi-node&previous=true&tailLines=20",
		"/api/v1/namespaces/vmware-system-csi/pods/p1/log?container=node-driver-registrar&previous=true&tailLines=20"}, node.asked)

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
