package assess

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// maxQuote bounds a quote of a container or event, in bytes.
const maxQuote = 300

// trouble is one reason why pods of a workload do not start, on any number of nodes.
type trouble struct {
	what, words string // "container x cannot start", and why
	finding     Finding
	first       string // the first pod, by name
	nodes       []string
}

// troubles are the troubles of a workload, by cause.
type troubles map[string]*trouble

// add adds the trouble of a pod. Pods with the same cause share the text of the first one by name.
func (all troubles) add(cause string, p *corev1.Pod, node string, is trouble) {
	t := all[cause]
	if t == nil {
		t = &trouble{}
		all[cause] = t
	}
	if t.first == "" || p.Name < t.first {
		is.first, is.nodes = p.Name, t.nodes
		is.finding.Waiting = is.finding.Waiting && (t.first == "" || t.finding.Waiting)
		*t = is
	} else {
		t.finding.Waiting = t.finding.Waiting && is.finding.Waiting
	}
	t.nodes = append(t.nodes, node)
}

// pods reports a driver's pods that do not start. One finding counts the nodes with the same trouble and names a
// few, so that the report does not grow with the cluster.
func (in *Input) pods(d matrix.Driver, workloads []Workload) []Finding {
	var all []Finding
	for _, w := range workloads {
		found, placed := troubles{}, in.RolledOut(w)
		for p := range in.podsOf(w) {
			for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
				in.container(found, w, p, c)
			}
			if !placed {
				in.unscheduled(found, w, p)
			}
		}
		gone := in.away(w).nodes
		for _, key := range slices.Sorted(maps.Keys(found)) {
			all = append(all, found[key].whole(gone))
		}
	}
	return all
}

// whole returns the finding with its nodes. It is Away if all of them are.
func (t *trouble) whole(gone []string) Finding {
	f := t.finding
	slices.Sort(t.nodes)
	if t.nodes = slices.Compact(t.nodes); t.nodes[0] != "" {
		t.what += " on " + nodesNamed(t.nodes)
	}
	f.Message = t.what + ": " + t.words
	f.Away = !slices.ContainsFunc(t.nodes, func(n string) bool {
		_, away := slices.BinarySearch(gone, n)
		return !away
	})
	return f
}

// nodesNamed names a node, or counts nodes and names a few.
func nodesNamed(all []string) string {
	if len(all) == 1 {
		return "node " + all[0]
	}
	return fmt.Sprintf("%d nodes (%s)", len(all), Few(all, ", "))
}

// container adds the reason why a container does not start.
func (in *Input) container(found troubles, w Workload, p *corev1.Pod, c corev1.ContainerStatus) {
	waiting := c.State.Waiting
	if waiting == nil {
		return
	}
	t := trouble{what: "container " + c.Name}
	t.finding = Finding{Driver: w.Driver, Subject: w.String(), Reason: fault.Incomplete}
	look := fmt.Sprintf("see `kubectl describe pod -n %s %s`", p.Namespace, p.Name)
	switch f := &t.finding; waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "RegistryUnavailable":
		f.Reason, f.Remedy = imageTrouble(waiting.Message)
		t.what, t.words = t.what+" cannot get its image", in.quote(waiting.Message)
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		t.what, t.words = t.what+" cannot start", in.quote(waiting.Message)
	case "CrashLoopBackOff":
		look = fmt.Sprintf("see `kubectl logs -n %s %s -c %s --previous`", p.Namespace, p.Name, c.Name)
		t.what, t.words = t.what+" ends again and again", in.crash(f, w, c)
	default:
		return
	}
	cause := strings.Join([]string{c.Name, waiting.Reason, string(t.finding.Reason), t.finding.Remedy}, "\x00")
	t.finding.Remedy = cmp.Or(t.finding.Remedy, look)
	found.add(cause, p, p.Spec.NodeName, t)
}

// says reports whether a text has a number as a word, not as a part of a digest or name.
func says(text, number string) bool {
	between := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	return slices.Contains(strings.FieldsFunc(text, between), number)
}

// imageTrouble returns the cause and remedy of a failed pull.
func imageTrouble(message string) (fault.Reason, string) {
	m := strings.ToLower(message)
	switch {
	case strings.Contains(m, "x509") || strings.Contains(m, "certificate"):
		return fault.CertificateInvalid, "the node's container runtime does not trust the mirror: add its CA to the runtime (containerd: ca in hosts.toml, at its top too, where it is looked up for what the mirror lacks) on every node"
	case strings.Contains(m, "has been deleted"):
		return fault.NotFound, "the registry of that image is gone: install from a bundle that holds it"
	case says(m, "401") || strings.Contains(m, "unauthorized") || strings.Contains(m, "authentication required") ||
		strings.Contains(m, "no basic auth"):
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

// crash sets the cause of a container's crash, from its last words or else its name. It returns the quote.
func (in *Input) crash(f *Finding, w Workload, c corev1.ContainerStatus) string {
	last := ""
	if t := c.LastTerminationState.Terminated; t != nil {
		last = cmp.Or(tellingLine(in.hide(t.Message)), tellingLine(in.hide(in.LastWords[wordsKey(w, c.Name)])),
			fmt.Sprintf("exit code %d", t.ExitCode))
	}
	s := signOf(last)
	switch {
	case s != nil:
		f.Reason, f.Remedy = s.reason, s.remedy
	case c.Name == "csi-snapshotter" && !in.SnapshotCRDs:
		f.Remedy = "the snapshot kinds are not installed: enable driver snapshot-controller in spec.drivers, or install them yourself"
	case c.Name == "node-driver-registrar":
		f.Remedy = "see to vsphere-csi-controller first: it makes the kind CSINodeTopology; node plugins recover by themselves"
	}
	return in.quote(last)
}

// quote returns the text on one line, bounded, as UTF-8, without known secrets. The API server would change invalid
// bytes, so that each reconcile would differ from the stored text.
func (in *Input) quote(s string) string {
	var line strings.Builder // no longer than the quote: s may be long, and there is one per node
	for word := range strings.FieldsSeq(withoutAccounts(in.hide(s))) {
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

// refusedPods reports pods that admission refused, which only events show.
func (in *Input) refusedPods(workloads []Workload) []Finding {
	var all []Finding
	for _, w := range workloads {
		if w.Kind != "DaemonSet" || w.whole || in.RolledOut(w) {
			continue // no pod is missing, so the refusal may be old
		}
		if e := in.lastRefusal(w); e != nil {
			all = append(all, in.refused(w, e.Message))
		}
	}
	return all
}

// lastRefusal returns the workload's last refusal, or nil if a newer pod exists and none is missing. Events stay for
// an hour, even if the cause is fixed or a namesake was deleted.
func (in *Input) lastRefusal(w Workload) *corev1.Event {
	var last *corev1.Event
	for i := range in.Events {
		e := &in.Events[i]
		about := e.InvolvedObject
		isItself := about.Kind == w.Kind && about.Namespace == w.Namespace && about.Name == w.Name &&
			(about.UID == "" || w.uid == "" || about.UID == w.uid)
		if e.Reason == "FailedCreate" && isItself && (last == nil || last.LastTimestamp.Before(&e.LastTimestamp)) {
			last = e
		}
	}
	if last == nil || last.LastTimestamp.IsZero() {
		return last
	}
	pods, newer := int32(0), false
	for p := range in.podsOf(w) {
		if p.DeletionTimestamp == nil {
			pods++
			newer = newer || last.LastTimestamp.Before(&p.CreationTimestamp)
		}
	}
	if newer && pods >= w.Desired {
		return nil
	}
	return last
}

// refused returns the finding for pods that cannot be created.
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

// unscheduled adds a pod without a fitting node, from the scheduler's condition. It applies only during a rollout:
// the storage driver's controller has more replicas than a small control plane has nodes. Within [Grace] it is
// Waiting, since a leaving pod makes room.
func (in *Input) unscheduled(found troubles, w Workload, p *corev1.Pod) {
	if p.Spec.NodeName != "" || p.DeletionTimestamp != nil {
		return
	}
	for _, c := range p.Status.Conditions {
		isFalse := c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		if isFalse && c.Reason == corev1.PodReasonUnschedulable {
			cause, remedy := schedulingTrouble(c.Message)
			node, what := nodeOf(p), "its pods have no place"
			if node != "" {
				what = "its pod has no place"
			}
			words := in.quote(cause)
			found.add("~"+words, p, node, trouble{what: what, words: words, finding: Finding{
				Driver: w.Driver, Subject: w.String(), Reason: fault.Incomplete, Remedy: remedy,
				Waiting: in.Now.Sub(c.LastTransitionTime.Time) < Grace,
			}})
		}
	}
}

// nodeOf returns a pod's node, or else the only one that a DaemonSet's pod may run on, or "".
func nodeOf(p *corev1.Pod) string {
	a := p.Spec.Affinity
	if p.Spec.NodeName != "" || a == nil || a.NodeAffinity == nil ||
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return p.Spec.NodeName
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == "metadata.name" && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return p.Spec.NodeName
}

// causes are the scheduler's reasons why a pod does not fit a node, with remedies. The first match counts: another
// node's affinity is harmless.
var causes = []struct {
	pattern *regexp.Regexp
	remedy  string
}{
	{regexp.MustCompile(`Too many pods`), "the node has as many pods as its kubelet takes (maxPods): move other pods away, or raise it"},
	{regexp.MustCompile(`Insufficient [\w./-]+`), "make room on the node: move other pods away or lower their requests"},
	{regexp.MustCompile(`node\(s\) had untolerated taint\(?s?\)? ?\{[^}]*\}`), "take the taint away, or have the driver tolerate it"},
	{regexp.MustCompile(`node\(s\) didn't have free ports for the requested pod ports`), "another program on that node listens on the port that the driver needs: see the pod's hostPort, and move the other one"},
	{regexp.MustCompile(`node\(s\) didn't match pod anti-affinity rules`), "each replica needs a node of its own: add control-plane nodes, or wait until a node is back"},
	{regexp.MustCompile(`node\(s\) were unschedulable`), "uncordon the node: `kubectl uncordon NAME`"},
	{regexp.MustCompile(`node\(s\) didn't match Pod's node affinity/selector`), "label a node as the pod demands: control-plane nodes need node-role.kubernetes.io/control-plane"},
}

// schedulingTrouble returns the cause in the scheduler's message. It omits the numbers of nodes, which change with
// every node that joins.
func schedulingTrouble(message string) (cause, remedy string) {
	for _, c := range causes {
		if found := c.pattern.FindString(message); found != "" {
			return found, c.remedy
		}
	}
	cause, _, _ = strings.Cut(message, "preemption:")
	return strings.TrimSpace(cause), "see `kubectl describe pod`"
}

// A terminated container leaves a termination message, which the drivers do not write, or the end of its log. A
// finding quotes its most specific line. It omits details of the attempt (times, process numbers, memory addresses,
// trace ids), so that the text stays stable, and possible secrets: see secrets.go.

// AddLastWords stores the end of the log of a workload's crashing container.
func (o *Observed) AddLastWords(w Workload, container, log string) {
	if o.LastWords == nil {
		o.LastWords = map[string]string{}
	}
	o.LastWords[wordsKey(w, container)] = log
}

func wordsKey(w Workload, container string) string { return w.String() + "\x00" + container }

var (
	klogHead = regexp.MustCompile(`^([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [^\]\s]+\] `)
	times    = regexp.MustCompile(`\b\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?`)
	pointers = regexp.MustCompile(`\b0x[0-9a-f]{4,}\b`)
)

// tellingLine returns the most specific line: the last with a known sign, else the last fatal one, else the last
// error, else the last. It skips lines that continue one which announces a secret.
func tellingLine(text string) string {
	best, rank := "", -1
	announced, key := false, false
	for raw := range strings.Lines(strings.ToValidUTF8(text, "\uFFFD")) {
		line, gravity := logLine(strings.TrimSpace(raw))
		if line == "" {
			continue
		}
		continues := announced || key
		announced = announces(line)
		key = strings.Contains(line, "-----BEGIN ") || key && !strings.Contains(line, "-----END ")
		if signOf(line) != nil {
			gravity = 3
		}
		if !continues && gravity >= rank {
			best, rank = line, gravity
		}
	}
	return withoutSecrets(stable(best))
}

// logLine returns the message of a log line, and its gravity: 2 for a fatal one, 1 for an error, 0 for others.
func logLine(line string) (says string, gravity int) {
	if says, level, ok := jsonLine(line); ok {
		return says, levels[level]
	}
	if head := klogHead.FindStringSubmatch(line); head != nil {
		return line[len(head[0]):], levels[head[1]]
	}
	if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
		gravity = 2
	}
	return line, gravity
}

var levels = map[string]int{"F": 2, "fatal": 2, "panic": 2, "E": 1, "error": 1}

// jsonLine reads a line of a structured logger.
func jsonLine(line string) (says, level string, ok bool) {
	if !strings.HasPrefix(line, "{") {
		return "", "", false
	}
	var entry struct{ Level, Msg, Message, Error, Err string }
	if err := json.Unmarshal([]byte(line), &entry); err != nil {
		return "", "", false
	}
	says = entry.Msg + entry.Message
	if why := entry.Error + entry.Err; why != "" && !strings.Contains(says, why) {
		says += ": " + why
	}
	return says, strings.ToLower(entry.Level), says != ""
}

// With thousands of pods speed matters: patterns run only on texts that may match.

// stable removes times and memory addresses, which differ between attempts.
func stable(s string) string {
	if strings.Count(s, ":") > 1 {
		s = times.ReplaceAllString(s, "")
	}
	if strings.Contains(s, "0x") {
		s = pointers.ReplaceAllString(s, "")
	}
	return strings.TrimSpace(s)
}

// sign is a fragment of a driver's log that identifies the cause.
type sign struct {
	fragment string
	reason   fault.Reason
	remedy   string
}

const (
	checkAccount   = "correct user and password in the credentials Secret of the VsphereCloudConfig"
	checkName      = "use as vcIp of the VsphereCloudConfig a name that is in the vCenter's certificate, or have that reissued"
	checkRights    = "give the account the privilege on the object: the driver's documents list them by role"
	checkAddress   = "the address that the message names has to be reachable from the node: its DNS, TCP 443, NetworkPolicies"
	tooOld         = "this vCenter is too old for the driver"
	findDatacenter = "correct spec.datacenters of the VsphereCloudConfig, with the folders it is in: folder/name; the account has to be able to read it"
	inDatacenters  = "the node's VM is in no datacenter listed, or the account cannot read it: correct spec.datacenters of the VsphereCloudConfig, grant ReadOnly"
)

// signs are the known ones of all releases of both drivers, except faults of configurations that rendering never
// writes. The first match counts, so specific signs come before general ones.
var signs = []sign{
	{"Cannot complete login", fault.Unauthorized, checkAccount},
	{"InvalidLogin", fault.Unauthorized, checkAccount},
	{"Cluster ID is present in vSphere Config Secret", fault.Conflict, "take spec.storageProvider.clusterID out: the driver has made an id of its own"},
	{"no matches for kind \"CSINodeTopology\"", fault.Incomplete, "the controller makes that kind when it runs: see to vsphere-csi-controller first, the node plugins recover by themselves"},
	{"timed out while waiting for topology labels", fault.Incomplete, "see `kubectl get csinodetopologies -o yaml`: status.errorMessage; check the tags on the host's chain and the account's permissions to read them"},
	{"found conflicting topology labels", fault.Conflict, "nodes carry beta and GA labels of zones: keep one family of them"},
	{"virtual machine wasn't found", fault.NotFound, inDatacenters},
	{"Failed to find the datacenter", fault.NotFound, findDatacenter},
	{"failed to match Prefix", fault.Incompatible, "this node is not a VMware VM, or its firmware data is hidden: run the driver on vSphere VMs only"},
	{"could not find the requested resource (get volumesnapshot", fault.Incomplete, "install the snapshot kinds: enable driver snapshot-controller in spec.drivers, or install them yourself"},
	{"not attached to node", fault.Incompatible, "set disk.EnableUUID=TRUE on the node's VM while it is off"},
	{"is forbidden: User", fault.Forbidden, "its permissions are older than its image: the next reconcile applies those of its release; keep other tools from changing the ClusterRoles"},
	{"NoPermission", fault.Forbidden, checkRights},
	{"Permission to perform this operation was denied", fault.Forbidden, checkRights},
	{"is not valid for any names", fault.CertificateInvalid, checkName},
	{"cannot validate certificate for", fault.CertificateInvalid, checkName},
	{"thumbprint does not match", fault.CertificateInvalid, "the vCenter's certificate was replaced: write the thumbprint of the new one into the VsphereCloudConfig"},
	{"x509:", fault.CertificateInvalid, "set ca or thumbprint in the VsphereCloudConfig: the pod does not know the node's CAs"},
	{"failed to connect to vCenter using CA file", fault.CertificateInvalid, "the CA of the VsphereCloudConfig has to be the one that the vCenter's certificate is from, as PEM"},
	{"checkAPI failed for vcenter API version", fault.Incompatible, tooOld},
	{"vSAN file service is not supported in one or more vCenter", fault.Incompatible, tooOld},
	{"dial tcp", fault.Unreachable, checkAddress},
	{"no such host", fault.Unreachable, checkAddress},
	{"datacenter '", fault.NotFound, findDatacenter}, // "datacenter 'x' not found"; the cause may come before
}

// signOf returns the first sign in a text, or nil.
func signOf(text string) *sign {
	for i := range signs {
		if strings.Contains(text, signs[i].fragment) {
			return &signs[i]
		}
	}
	return nil
}
