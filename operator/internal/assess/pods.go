package assess

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// maxQuote bounds what is quoted of a container's or event's own words.
const maxQuote = 300

// maxFindings bounds what is said of one driver's containers; the rest is counted.
const maxFindings = 20

// trouble is a container that does not come up, for one cause, on any number of nodes.
type trouble struct {
	first   *corev1.Pod // by name
	status  corev1.ContainerStatus
	nodes   []string
	finding Finding // without nodes
}

// pods finds containers of a driver that do not come up. The same trouble on many
// nodes is one finding, which counts them and names a few: the report of a cluster
// does not grow with it.
func (in *Input) pods(d matrix.Driver) []Finding {
	var all []Finding
	for _, w := range in.Workloads(d) {
		found := map[string]*trouble{}
		for p := range in.podsOf(w) {
			for _, c := range append(append([]corev1.ContainerStatus{}, p.Status.InitContainerStatuses...), p.Status.ContainerStatuses...) {
				in.container(found, w, p, c)
			}
		}
		gone := in.away(w).nodes
		for _, key := range slices.Sorted(maps.Keys(found)) {
			f := found[key].whole()
			f.Away = !slices.ContainsFunc(found[key].nodes, func(n string) bool {
				_, away := slices.BinarySearch(gone, n)
				return !away
			})
			all = append(all, f)
		}
	}
	if len(all) > maxFindings {
		rest := len(all) - maxFindings
		all = append(all[:maxFindings], Finding{Driver: d, Subject: string(d), Reason: fault.Incomplete,
			Message: fmt.Sprintf("%d more troubles with its containers", rest), Remedy: "see to those named first"})
	}
	return all
}

// container notes the trouble of a container, if it has one.
func (in *Input) container(found map[string]*trouble, w Workload, p *corev1.Pod, c corev1.ContainerStatus) {
	f, ok := in.trouble(w, c)
	if !ok {
		return
	}
	key := c.Name + "\x00" + c.State.Waiting.Reason + "\x00" + string(f.Reason) + "\x00" + f.Remedy
	t := found[key]
	if t == nil {
		t = &trouble{first: p, status: c, finding: f}
		found[key] = t
	}
	if p.Name < t.first.Name {
		t.first, t.status, t.finding = p, c, f
	}
	t.nodes = append(t.nodes, p.Spec.NodeName)
}

// whole returns the finding with its nodes, and with what to look at.
func (t *trouble) whole() Finding {
	f := t.finding
	slices.Sort(t.nodes)
	container, words, _ := strings.Cut(f.Message, ": ")
	f.Message = container + " on " + nodesNamed(t.nodes) + ": " + words
	if f.Remedy == "" {
		f.Remedy = "see `kubectl describe pod -n " + t.first.Namespace + " " + t.first.Name + "`"
		if t.status.State.Waiting.Reason == "CrashLoopBackOff" {
			f.Remedy = fmt.Sprintf("see `kubectl logs -n %s %s -c %s --previous`", t.first.Namespace, t.first.Name, t.status.Name)
		}
	}
	return f
}

// nodesNamed names nodes, a few of them where they are many.
func nodesNamed(all []string) string {
	if len(all) == 1 {
		return "node " + all[0]
	}
	return fmt.Sprintf("%d nodes (%s)", len(all), few(all, ", "))
}

// trouble tells why a container does not come up. What it says is the same for the
// same cause, whatever the pod; without a remedy it is the pod that has to be looked at.
func (in *Input) trouble(w Workload, c corev1.ContainerStatus) (Finding, bool) {
	waiting := c.State.Waiting
	if waiting == nil {
		return Finding{}, false
	}
	f := Finding{Driver: w.Driver, Subject: w.String()}
	switch waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "RegistryUnavailable":
		f.Reason, f.Remedy = imageTrouble(waiting.Message)
		f.Message = fmt.Sprintf("container %s cannot get its image: %s", c.Name, in.quote(waiting.Message))
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		f.Reason = fault.Incomplete
		f.Message = fmt.Sprintf("container %s cannot start: %s", c.Name, in.quote(waiting.Message))
	case "CrashLoopBackOff":
		f = in.crash(f, w, c)
	default:
		return Finding{}, false
	}
	return f, true
}

// says tells whether a text has a number as a word: digests and names have it as a part.
func says(text, number string) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }), number)
}

// imageTrouble tells the causes of a failed pull apart.
func imageTrouble(message string) (fault.Reason, string) {
	m := strings.ToLower(message)
	switch {
	case strings.Contains(m, "x509") || strings.Contains(m, "certificate"):
		return fault.CertificateInvalid, "the node's container runtime does not trust the mirror: add its CA to the runtime (containerd: ca in hosts.toml, at its top too, where it is looked up for what the mirror lacks) on every node"
	case strings.Contains(m, "has been deleted"):
		return fault.NotFound, "the registry of that image is gone: install from a bundle that holds it"
	case says(m, "401") || strings.Contains(m, "unauthorized") || strings.Contains(m, "authentication required") || strings.Contains(m, "no basic auth"):
		return fault.Unauthorized, "the mirror refuses the login: set spec.pullSecret of the DriverBundle to a Secret that may pull"
	case says(m, "403") || strings.Contains(m, "forbidden") || strings.Contains(m, "denied"):
		return fault.Forbidden, "the mirror's account may not pull: give it read access to the repository"
	case strings.Contains(m, "manifest unknown") || strings.Contains(m, "not found") || says(m, "404"):
		return fault.NotFound, "the mirror lacks the image: push the whole bundle again with `vdo-bundle push`"
	case strings.Contains(m, "no match for platform") || strings.Contains(m, "no matching manifest"):
		return fault.Incompatible, "the bundle lacks this node's platform: make it with --platform all"
	}
	return fault.Unreachable, "see that the node reaches the mirror"
}

// crash finds why a container falls over, from its last words where it left some,
// else from which container it is.
func (in *Input) crash(f Finding, w Workload, c corev1.ContainerStatus) Finding {
	last := ""
	if t := c.LastTerminationState.Terminated; t != nil {
		if last = tellingLine(in.hide(t.Message)); last == "" {
			last = tellingLine(in.hide(in.LastWords[wordsKey(w, c.Name)]))
		}
		if last == "" {
			last = fmt.Sprintf("exit code %d", t.ExitCode)
		}
	}
	f.Message = fmt.Sprintf("container %s ends again and again: %s", c.Name, in.quote(last))
	f.Reason = fault.Incomplete
	if s := signOf(last); s != nil {
		f.Reason, f.Remedy = s.reason, s.remedy
		return f
	}
	switch {
	case c.Name == "csi-snapshotter" && !in.SnapshotCRDs:
		f.Remedy = "the snapshot kinds are not installed: enable driver snapshot-controller in spec.drivers, or install them yourself"
	case c.Name == "node-driver-registrar":
		f.Remedy = "see to vsphere-csi-controller first: it makes the kind CSINodeTopology; node plugins recover by themselves"
	}
	return f
}

// quote quotes somebody else's words: bounded, on one line, without secrets that are known,
// and as UTF-8, since the API server would keep anything else changed, and every pass
// differ from what it kept.
func (in *Input) quote(s string) string {
	var line strings.Builder
	for word := range strings.FieldsSeq(withoutAccounts(in.hide(s))) { // no further than is quoted: it may be long, and of every node
		if line.Len() > maxQuote {
			break
		}
		if line.Len() > 0 {
			line.WriteByte(' ')
		}
		line.WriteString(strings.ToValidUTF8(word, "\uFFFD"))
	}
	s = line.String()
	if len(s) > maxQuote {
		s = strings.ToValidUTF8(s[:maxQuote], "") + "…"
	}
	if s == "" {
		return "it left no message"
	}
	return s
}

// refusedPods finds pods that admission refused, which only events tell of.
func (in *Input) refusedPods(d matrix.Driver) []Finding {
	var all []Finding
	for _, w := range in.Workloads(d) {
		if w.Kind != "DaemonSet" || w.whole || in.RolledOut(w) {
			continue // of one that waits to be rolled out the refusal may be an old one
		}
		if e := in.lastRefusal(w); e != nil {
			all = append(all, in.refused(w, e.Message))
		}
	}
	return all
}

// lastRefusal is of the workload itself: events of one of the same name that was deleted stay for
// an hour.
func (in *Input) lastRefusal(w Workload) *corev1.Event {
	var last *corev1.Event
	for i := range in.Events {
		e := &in.Events[i]
		about := e.InvolvedObject
		if e.Reason == "FailedCreate" && about.Kind == w.Kind && about.Namespace == w.Namespace && about.Name == w.Name &&
			(about.UID == "" || w.uid == "" || about.UID == w.uid) && (last == nil || last.LastTimestamp.Before(&e.LastTimestamp)) {
			last = e
		}
	}
	return last
}

// refused tells why pods are not created.
func (in *Input) refused(w Workload, message string) Finding {
	f := Finding{Driver: w.Driver, Subject: w.String(), Reason: fault.Forbidden, Message: "its pods are refused: " + in.quote(message),
		Remedy: "see which admission policy refuses them"}
	switch {
	case strings.Contains(message, "violates PodSecurity"):
		f.Remedy = "label the namespace: `kubectl label namespace NAME pod-security.kubernetes.io/enforce=privileged --overwrite`"
	case strings.Contains(message, "security context constraint"):
		f.Remedy = "bind the SecurityContextConstraints that the driver needs to its service account"
	case strings.Contains(message, "exceeded quota"):
		f.Remedy = "raise the namespace's quota"
	}
	return f
}

// certificateAge finds a webhook certificate that is or will soon be too old.
func certificateAge(data []byte, now time.Time) []Finding {
	const subject = "ValidatingWebhookConfiguration " + drivers.WebhookConfiguration
	f := Finding{Driver: matrix.CSI, Subject: subject, Reason: fault.Corrupt, Remedy: "delete Secret " + drivers.CSINamespace + "/" + drivers.WebhookSecret + ": it is made again"}
	block, _ := pem.Decode(data)
	if block == nil {
		f.Message = "its certificate is not PEM"
		return []Finding{f}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		f.Message = "its certificate cannot be read"
		return []Finding{f}
	}
	if !now.Before(cert.NotAfter) {
		f.Reason = fault.Expired
		f.Message = fmt.Sprintf("its certificate ended at %s: StorageClasses cannot be written, nor claims changed or deleted", cert.NotAfter.UTC().Format(time.RFC3339))
		return []Finding{f}
	}
	return nil
}

func labelsOf(p *corev1.Pod) labels.Set { return labels.Set(p.Labels) }
