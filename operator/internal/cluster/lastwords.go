package cluster

import (
	"cmp"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
)

const (
	maxLogs    = 8  // containers whose logs are read in a pass: one for each that falls over
	logLines   = 20 // of each
	maxLog     = 64 << 10
	logTimeout = 5 * time.Second // for all of them
)

// LogReader reads the end of the log of a container's last run.
type LogReader func(ctx context.Context, namespace, pod, container string) (string, error)

// Logs returns what reads logs through the API server, which asks the kubelet.
func Logs(cfg *rest.Config, h *http.Client) (LogReader, error) {
	c, err := kubernetes.NewForConfigAndClient(cfg, h)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, namespace, pod, container string) (string, error) {
		lines := int64(logLines)
		stream, err := c.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container, Previous: true, TailLines: &lines}).Stream(ctx)
		if err != nil {
			return "", err
		}
		defer stream.Close() //nolint:errcheck // it was read
		data, err := io.ReadAll(io.LimitReader(stream, maxLog))
		return string(data), err
	}, nil
}

// silent is a container that falls over and left no message.
type silent struct {
	workload  assess.Workload
	pod       string
	container string
}

// silentContainers returns those of a workload's pods, each container once: of the pod
// that is named in the finding, the first by name.
func silentContainers(w assess.Workload, pods []*corev1.Pod) []silent {
	found := map[string]silent{}
	for i := range pods {
		st := &pods[i].Status
		for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
			t := c.LastTerminationState.Terminated
			if c.State.Waiting == nil || c.State.Waiting.Reason != "CrashLoopBackOff" || t == nil || t.Message != "" {
				continue
			}
			if was, exists := found[c.Name]; !exists || pods[i].Name < was.pod {
				found[c.Name] = silent{workload: w, pod: pods[i].Name, container: c.Name}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b silent) int { return cmp.Compare(a.container, b.container) })
}

// lastWords reads the logs of containers that fall over, as far as that is allowed and
// kubelets answer: it only tells more of what is known anyway.
func (c *Cluster) lastWords(ctx context.Context, o *assess.Observed, all []silent) {
	if c.Log == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	all = all[:min(len(all), maxLogs)]
	logs, _, _ := sideBySide(ctx, all, func(ctx context.Context, s silent) (string, error) { //nolint:errcheck // there is none
		log, err := c.Log(ctx, s.workload.Namespace, s.pod, s.container)
		if err != nil {
			return "", nil //nolint:nilerr // half a log tells nothing
		}
		return log, nil
	})
	for i, s := range all {
		o.AddLastWords(s.workload, s.container, logs[i])
	}
}
