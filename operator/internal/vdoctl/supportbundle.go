package vdoctl

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

type supportReport struct {
	File  string `json:"file"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
	// Incomplete is set if an existing object could not be read.
	Incomplete bool     `json:"incomplete,omitempty"`
	Unread     []string `json:"unread,omitempty"` // what it lacks, and why
}

// collection is the archive while it is written.
type collection struct {
	*app

	noPreflight bool
	tail        int64

	client client.Client
	logs   kubernetes.Interface

	hide   *redactor
	tar    *tar.Writer
	files  int
	unread []string // existing objects that could not be read, and why
	// unreadLogs are the logs that could not be read, by the error: a cause often concerns many.
	unreadLogs map[string][]string
	failed     error // of writing
}

func newSupportBundleCommand(a *app) *cobra.Command {
	o := &collection{app: a, hide: newRedactor()}
	cmd := &cobra.Command{
		Use: "support-bundle [FILE]", Short: "Collect logs and resources in a file without secrets",
		Long: `Writes a tar.gz for support: the operator's resources, the drivers' workloads and pods with
their logs, events, nodes, classes, and the output of status, version and check. It removes
values of Secrets from all files, and settings whose names suggest a secret. If it cannot read
the Secrets, it collects no logs. It sends nothing.

If it could not read an existing object, it exits with 9, and unread.txt names the object.`,
		Example: "  vdoctl support-bundle\n  vdoctl support-bundle /tmp/site-a.tar.gz --no-check",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), strings.Join(args, "")) },
	}
	cmd.Flags().BoolVar(&o.noPreflight, "no-check", false, "do not ask the vCenters")
	cmd.Flags().BoolVar(&o.noPreflight, "no-preflight", false, "as --no-check")
	_ = cmd.Flags().MarkHidden("no-preflight") // its earlier name
	cmd.Flags().Int64Var(&o.tail, "tail", 5000, "how many `LINES` of each log")
	o.bindFormat(cmd)
	return cmd
}

func (x *collection) run(ctx context.Context, name string) error {
	if x.tail < 1 {
		return flags.Bad("--tail", fmt.Sprint(x.tail), errors.New("less than 1"), "give a number of lines")
	}
	if name == "" {
		name = "vdo-support-" + x.now().UTC().Format("20060102-150405") + ".tar.gz"
	}
	cfg, err := x.cluster.config()
	if err != nil {
		return err
	}
	if x.client, err = x.cluster.client(); err != nil {
		return err
	}
	if x.logs, err = kubernetes.NewForConfig(cfg); err != nil {
		return clusterstate.Fault("reach the cluster", err)
	}
	// A cluster that does not answer, or refuses the login, has nothing to collect. A user with fewer permissions
	// collects the readable part.
	err = x.client.Get(ctx, client.ObjectKey{Name: x.cluster.namespace}, &corev1.Namespace{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return clusterstate.Fault("collect from the cluster", err)
	}
	if _, err := os.Lstat(name); err == nil {
		return fault.Errorf(fault.Conflict, "write", name, "choose another name, or remove it", "it is there already")
	}
	size := int64(0)
	err = userfile.Fill(name, 0, func(f *os.File) error {
		z := gzip.NewWriter(f)
		t := tar.NewWriter(z)
		if err := x.collect(ctx, cfg, t); err != nil {
			return err
		}
		err := errors.Join(t.Close(), z.Close())
		size, _ = f.Seek(0, io.SeekCurrent)
		return err
	})
	if err != nil {
		return err
	}
	r := supportReport{File: name, Files: x.files, Bytes: size, Incomplete: len(x.unread) > 0, Unread: x.unread}
	if err := x.print(r, r.text); err != nil {
		return err
	}
	if r.Incomplete {
		return &resultError{code: command.ExitIncomplete}
	}
	return nil
}

func (a *app) passwords() (out []string) {
	for _, name := range []string{passwordEnv, accountPasswordEnv} {
		if p, ok := a.getenv(name); ok {
			out = append(out, p)
		}
	}
	return out
}

// collect fills the archive. It reads the Secrets first, since it hides their values.
func (x *collection) collect(ctx context.Context, cfg *rest.Config, w *tar.Writer) error {
	x.tar = w
	for _, v := range append(x.passwords(), cfg.BearerToken, cfg.Password) {
		x.hide.add([]byte(v))
	}
	x.say("collecting resources")
	known := x.secrets(ctx)
	x.resources(ctx)
	x.say("collecting logs")
	x.podLogs(ctx, known)
	x.say("collecting status, version and checks")
	x.ownOutput(ctx)
	x.checks(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	x.put("unread.txt", []byte(strings.Join(append([]string{completeness(len(x.unread))}, x.unread...), "\n")+"\n"))
	return x.failed
}

func (x *collection) say(what string) { _ = command.Say(x.err, "%s", what) }

func (x *collection) put(name string, data []byte) {
	if x.failed != nil {
		return
	}
	data = x.hide.clean(data)
	x.files++
	path := strings.SplitN(name, "/", 3) // the second part is a namespace, and is the same in all clusters
	path[len(path)-1] = x.hide.cleanText(path[len(path)-1])
	h := &tar.Header{Name: "vdo-support/" + strings.Join(path, "/"), Mode: 0o600, Size: int64(len(data)), ModTime: x.now().UTC().Truncate(time.Second), Typeflag: tar.TypeReg}
	if x.failed = x.tar.WriteHeader(h); x.failed == nil {
		_, x.failed = x.tar.Write(data)
	}
}

// putYAML writes a value. It cleans the texts before: YAML wraps, indents and quotes them, so that a value in them is
// no longer recognizable.
func (x *collection) putYAML(name string, value any) {
	value, err := x.hide.object(value)
	var data []byte
	if err == nil {
		data, err = yaml.Marshal(value)
	}
	if err != nil {
		x.missed(name, err)
		return
	}
	x.put(name, data)
}

func (x *collection) missed(what string, err error) {
	if right := clusterstate.MissingRight(err); right != "" {
		err = errors.New("no permission to " + right)
	}
	x.unread = append(x.unread, x.hide.cleanText(what+": "+strings.ReplaceAll(err.Error(), "\n", " ")))
}

func (x *collection) ownOutput(ctx context.Context) {
	status, err := readStatus(ctx, x.client, x.cluster.namespace)
	if err != nil {
		x.missed("status", err)
	} else {
		x.putYAML("status.yaml", status)
	}
	version := versionReport{Client: x.build}
	if err := (&versionOptions{app: x.app}).observe(ctx, &version); err != nil {
		x.missed("version", err)
	}
	x.putYAML("version.yaml", version)
}

func (x *collection) checks(ctx context.Context) {
	if x.noPreflight {
		return
	}
	snapshot, policy, err := x.gather(ctx, siteFlags{})
	if err != nil {
		if fault.ReasonOf(err) != fault.NotFound { // otherwise nothing is configured, which the resources show too
			x.missed("preflight", err)
		}
		return
	}
	x.putYAML("preflight.yaml", reportOf(snapshot, policy, func(preflight.ID) bool { return true }))
}

func completeness(unread int) string {
	if unread > 0 {
		return "incomplete: something that is there could not be read"
	}
	return "complete: all that is there was read"
}

func (r supportReport) text(l *lines) {
	l.printf("%s: %s, %d bytes", r.File, command.Plural(r.Files, "file", "files"), r.Bytes)
	l.printf("%s", completeness(len(r.Unread)))
	for _, u := range r.Unread {
		l.printf("  %s", u)
	}
	l.printf("Look into it before you hand it on: names and addresses of the site are in it.")
}

func (x *collection) namespaces() []string {
	return []string{x.cluster.namespace, drivers.CSINamespace, drivers.SystemNamespace}
}

// secrets writes the names of Secrets and of their keys, and hides their values everywhere. It reports whether all
// values are known.
func (x *collection) secrets(ctx context.Context) bool {
	known := true
	for _, ns := range x.namespaces() {
		if err := pages.Each(ctx, x.client, &corev1.SecretList{}, x.secret, client.InNamespace(ns)); err != nil {
			known = false
			x.missed("Secrets of "+ns, err)
		}
	}
	return known
}

// notSecret are keys of Secrets whose values help to find a fault, and stay readable.
var notSecret = []string{
	corev1.BasicAuthUsernameKey, v1alpha1.DefaultCAKey, corev1.TLSCertKey, corev1.ServiceAccountNamespaceKey,
}

func (x *collection) secret(s *corev1.Secret) {
	keys := map[string]string{}
	for k, v := range s.Data {
		keys[k] = fmt.Sprintf("%d bytes", len(v))
		_, notBool := strconv.ParseBool(strings.TrimSpace(string(v)))
		if !slices.Contains(notSecret, k) && !strings.HasSuffix(k, ".username") && (notBool != nil || isSecretName(k)) {
			x.hide.add(v)
		}
	}
	if s.Namespace != drivers.SystemNamespace {
		x.putYAML("resources/"+s.Namespace+"/Secret/"+s.Name+".yaml", map[string]any{"name": s.Name, "namespace": s.Namespace, "type": s.Type, "created": s.CreationTimestamp, "keys": keys})
	}
}

type collected struct {
	apiVersion, kind string
	namespaced       bool
	only             func(*unstructured.Unstructured) bool // nil: all
}

// kindsToCollect returns the kinds that are read completely in the operator's and the storage driver's namespaces; in
// kube-system only the drivers' objects.
func kindsToCollect() []collected {
	group := v1alpha1.GroupVersion.String()
	ours := func(u *unstructured.Unstructured) bool { return isOurs(u.GetName()) }
	volume := func(u *unstructured.Unstructured) bool {
		driver, _, _ := unstructured.NestedString(u.Object, "spec", "csi", "driver")
		attacher, _, _ := unstructured.NestedString(u.Object, "spec", "attacher")
		return driver == drivers.CSIDriver || attacher == drivers.CSIDriver
	}
	return []collected{
		{group, "VDOConfig", true, nil}, {group, "VsphereCloudConfig", true, nil}, {group, "DriverBundle", true, nil}, {group, "CompatibilityConfig", true, nil},
		{"apps/v1", "Deployment", true, nil}, {"apps/v1", "DaemonSet", true, nil}, {"apps/v1", "ReplicaSet", true, nil},
		{"v1", "Pod", true, nil}, {"v1", "Service", true, nil}, {"v1", "ServiceAccount", true, nil}, {"v1", "ConfigMap", true, nil}, {"v1", "Event", true, nil},
		{"networking.k8s.io/v1", "NetworkPolicy", true, nil}, {"rbac.authorization.k8s.io/v1", "Role", true, nil}, {"coordination.k8s.io/v1", "Lease", true, nil},
		{"v1", "Node", false, nil}, {"v1", "Namespace", false, nil}, {"storage.k8s.io/v1", "CSINode", false, nil}, {"storage.k8s.io/v1", "CSIDriver", false, nil},
		{"storage.k8s.io/v1", "StorageClass", false, nil}, {"storage.k8s.io/v1", "VolumeAttachment", false, volume}, {"v1", "PersistentVolume", false, volume},
		{"rbac.authorization.k8s.io/v1", "ClusterRole", false, ours}, {"rbac.authorization.k8s.io/v1", "ClusterRoleBinding", false, ours},
		{"admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", false, ours}, {crdVersion, crdKind, false, ours},
	}
}

func (x *collection) resources(ctx context.Context) {
	for _, k := range kindsToCollect() {
		if !k.namespaced {
			x.kind(ctx, k, "")
			continue
		}
		for _, ns := range x.namespaces() {
			if ns == drivers.SystemNamespace && !slices.Contains([]string{"Deployment", "DaemonSet", "Pod", "ConfigMap", "Event"}, k.kind) {
				continue
			}
			x.kind(ctx, k, ns)
		}
	}
}

// kind writes the objects of a kind. It skips a kind that the cluster does not have.
func (x *collection) kind(ctx context.Context, k collected, ns string) {
	gvk := schema.FromAPIVersionAndKind(k.apiVersion, k.kind)
	dir := "resources/" + ns + "/" + k.kind + "/"
	if ns == "" {
		dir = "resources/cluster/" + k.kind + "/"
	}
	err := pages.Each(ctx, x.client, pages.Empty(gvk), func(u *unstructured.Unstructured) {
		if k.takes(u) {
			x.hide.withoutSecrets(u)
			x.putYAML(dir+u.GetName()+".yaml", u.Object)
		}
	}, client.InNamespace(ns))
	if err != nil && !isGone(err) {
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		x.missed(strings.TrimSpace(plural.Resource+" "+ns), err)
	}
}

func (k collected) takes(u *unstructured.Unstructured) bool {
	if k.only != nil {
		return k.only(u)
	}
	about, _, _ := unstructured.NestedString(u.Object, "involvedObject", "name")
	return u.GetNamespace() != drivers.SystemNamespace || isOurs(u.GetName()) || isOurs(about)
}

// isOurs reports by its name whether an object is the operator's or a driver's.
func isOurs(name string) bool {
	return strings.Contains(name, "vsphere") || strings.HasPrefix(name, "vdo") ||
		strings.HasPrefix(name, "snapshot-") || strings.HasPrefix(name, "antrea-") ||
		strings.HasSuffix(name, "vmware.com") || strings.HasSuffix(name, ".snapshot.storage.k8s.io")
}

const maxLog = 8 << 20

var errSecretsUnread = errors.New("left out: the Secrets whose values have to be taken out of them cannot be read")

func (x *collection) podLogs(ctx context.Context, known bool) {
	if !known {
		x.missed("logs", errSecretsUnread)
		return
	}
	x.unreadLogs = map[string][]string{}
	for _, ns := range x.namespaces() {
		var pods corev1.PodList
		if err := x.client.List(ctx, &pods, client.InNamespace(ns)); err != nil {
			x.missed("pods of "+ns, err)
			continue
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if (ns != drivers.SystemNamespace || isOurs(p.Name)) && p.Spec.NodeName != "" {
				x.logsOf(ctx, p)
			}
		}
	}
	for _, why := range slices.Sorted(maps.Keys(x.unreadLogs)) {
		logs := x.unreadLogs[why]
		if more := len(logs) - 1; more > 0 {
			logs[0] += " and " + command.Plural(more, "other log", "other logs")
		}
		x.missed(logs[0], errors.New(why))
	}
}

// logsOf writes the log of each container, and that of its previous run. The API server answers BadRequest if there is
// none: the container has not started, or never restarted.
func (x *collection) logsOf(ctx context.Context, p *corev1.Pod) {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		name := "logs/" + p.Namespace + "/" + p.Name + "/" + c.Name
		for _, suffix := range []string{"", ".previous"} {
			data, err := x.log(ctx, p, corev1.PodLogOptions{
				Container: c.Name, Previous: suffix != "", TailLines: &x.tail, Timestamps: true})
			switch {
			case err == nil:
				x.put(name+suffix+".log", data)
			case !apierrors.IsBadRequest(err):
				if right := clusterstate.MissingRight(err); right != "" {
					err = errors.New("no permission to " + right) // the text of the API server names the pod
				}
				x.unreadLogs[err.Error()] = append(x.unreadLogs[err.Error()], name+suffix)
			}
		}
	}
}

func (x *collection) log(ctx context.Context, p *corev1.Pod, o corev1.PodLogOptions) ([]byte, error) {
	o.LimitBytes = ptr.To(int64(maxLog + 1))
	r := x.logs.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &o).Do(ctx)
	data, _ := r.Raw() //nolint:errcheck // Error has the API server's message too
	if whole := wholeLines(data, maxLog); len(whole) < len(data) {
		end := "the end of a log of " + p.Namespace + "/" + p.Name + ", " + o.Container
		x.missed(end, fmt.Errorf("it is longer than %d bytes", maxLog))
		data = whole
	}
	return data, r.Error()
}

// wholeLines returns the lines that end within a size: a cut value is no longer recognizable.
func wholeLines(data []byte, size int) []byte {
	if len(data) <= size {
		return data
	}
	return data[:bytes.LastIndexByte(data[:size], '\n')+1]
}
