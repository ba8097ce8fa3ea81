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
	maxLogs    = 8  // containers whose logs are read per reconcile, one each
	logLines   = 20 // per container
	maxLog     = 64 << 10
	logTimeout = 5 * time.Second // for all together
)

// LogReader reads the end of the log of a container's last run.
type LogReader func(ctx context.Context, namespace, pod, container string) (string, error)

// Logs returns a LogReader that uses the API server, which asks the kubelet.
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

// silent is a crashing container without a termination message.
type silent struct {
	workload  assess.Workload
	pod       string
	container string
}

// silentContainers returns a workload's silent containers, each once, with the first pod by name, as in findings.
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

// lastWords adds the logs of crashing containers to o, as far as they are readable. They are optional detail, so
// errors are ignored.
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
			return "", nil //nolint:nilerr // a partial log is no use
		}
		return log, nil
	})
	for i, s := range all {
		o.AddLastWords(s.workload, s.container, logs[i])
	}
}
