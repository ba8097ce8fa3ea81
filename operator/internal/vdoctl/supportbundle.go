package vdoctl

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// supportReport is what support-bundle prints.
type supportReport struct {
	File  string `json:"file"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
	// Incomplete is set where something that is there could not be read.
	Incomplete bool     `json:"incomplete,omitempty"`
	Unread     []string `json:"unread,omitempty"` // what is not in it, and why
}

type supportOptions struct {
	*app
	outputFlags

	noPreflight bool
	tail        int64
}

func newSupportBundleCommand(a *app) *cobra.Command {
	o := &supportOptions{app: a}
	cmd := &cobra.Command{
		Use: "support-bundle [FILE]", Short: "Write what helps to find a fault into one file, without secrets",
		Long: `Writes a tar.gz for who helps to find a fault: the operator's resources, the drivers'
workloads and pods with their logs, events, nodes, classes, and the output of status, version
and preflight. Of Secrets the keys are in it and no values; every value of a Secret of the
operator's and the drivers' namespaces, its base64 and what logs make of it is taken out of
all files, and so are settings, options and variables that sound secret in ConfigMaps and pods,
and annotations that are large or copies of objects. Where the Secrets cannot be read there are
no logs in it. Nothing is sent anywhere, and nothing is changed; preflight logs in to the
vCenters once, unless it is left out.

Where something that is there could not be read, a log for instance, it ends with 9; the
output and unread.txt in the archive say what is not in it, and why.`,
		Example: "  vdoctl support-bundle\n  vdoctl support-bundle /tmp/site-a.tar.gz --no-preflight",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return flags.Usage(cmd, fmt.Sprintf("unexpected argument %q", args[1]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), strings.Join(args, "")) },
	}
	cmd.Flags().BoolVar(&o.noPreflight, "no-preflight", false, "do not ask the vCenters")
	cmd.Flags().Int64Var(&o.tail, "tail", 5000, "how many `LINES` of each log")
	o.outputFlags.bind(cmd)
	return cmd
}

// collection is the archive while it is written.
type collection struct {
	app    *app
	client client.Client
	logs   kubernetes.Interface
	ns     string
	tail   int64

	hide   *redactor
	tar    *tar.Writer
	files  int
	failed bool // something that is there could not be read
	unread []string
	err    error // of writing
}

func (o *supportOptions) run(ctx context.Context, name string) error {
	if o.tail < 1 {
		return flags.Bad("--tail", fmt.Sprint(o.tail), errors.New("less than 1"), "give a number of lines")
	}
	if name == "" {
		name = "vdo-support-" + o.now().UTC().Format("20060102-150405") + ".tar.gz"
	}
	cfg, err := o.cluster.config()
	if err != nil {
		return err
	}
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	k, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return clusterFault("reach the cluster", err)
	}
	if err := o.reachable(ctx, k); err != nil {
		return err
	}
	x := &collection{app: o.app, client: c, logs: k, ns: o.cluster.namespace, tail: o.tail, hide: newRedactor()}
	size, err := o.write(name, func(w *tar.Writer) error { return o.collect(ctx, x, cfg, w) })
	if err != nil {
		return err
	}
	r := supportReport{File: name, Files: x.files, Bytes: size, Incomplete: x.failed, Unread: x.unread}
	if err := o.print(o.out, r, r.text); err != nil {
		return err
	}
	if x.failed {
		return &resultError{code: command.ExitIncomplete}
	}
	return nil
}

// reachable asks the cluster once: of one that does not answer, or refuses the login, there
// is nothing to collect. Who may not read all of it collects what they may.
func (o *supportOptions) reachable(ctx context.Context, k kubernetes.Interface) error {
	_, err := k.CoreV1().Namespaces().Get(ctx, o.cluster.namespace, metav1.GetOptions{})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return clusterFault("collect from the cluster", err)
}

// write makes the file beside its name, for nobody else to read, and names it once it is
// whole.
func (o *supportOptions) write(name string, fill func(*tar.Writer) error) (size int64, err error) {
	refused := func(err error) error { return notWritten(name, err) }
	if _, err := os.Lstat(name); err == nil {
		return 0, &fault.Error{Reason: fault.Conflict, Op: "write", Subject: name, Err: errors.New("it is there already"), Hint: "choose another name"}
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".vdo-support-*")
	if err != nil {
		return 0, refused(err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // gone already, where it has got its name
	}()
	z := gzip.NewWriter(f)
	t := tar.NewWriter(z)
	if err := fill(t); err != nil {
		return 0, err
	}
	if err := errors.Join(t.Close(), z.Close(), f.Sync()); err != nil {
		return 0, refused(err)
	}
	info, err := f.Stat()
	if err != nil {
		return 0, refused(err)
	}
	// The name is taken first, never from a file that has come meanwhile: media without hard links
	// (FAT, exFAT) have no other way.
	placeholder, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, refused(err)
	}
	if err := errors.Join(placeholder.Close(), os.Rename(f.Name(), name)); err != nil {
		return 0, refused(err)
	}
	return info.Size(), nil
}

// passwords are those in the environment.
func (a *app) passwords() (out []string) {
	for _, name := range []string{passwordEnv, accountPasswordEnv} {
		if p, ok := a.getenv(name); ok {
			out = append(out, p)
		}
	}
	return out
}

// collect fills the archive: the Secrets first, since their values are what is hidden.
func (o *supportOptions) collect(ctx context.Context, x *collection, cfg *rest.Config, w *tar.Writer) error {
	x.tar = w
	for _, v := range append(o.passwords(), cfg.BearerToken, cfg.Password) {
		x.hide.add([]byte(v))
	}
	p := o.progress()
	defer p.end()
	known := false
	for _, part := range []struct {
		what string
		work func(context.Context)
	}{
		{"secrets", func(ctx context.Context) { known = x.secrets(ctx) }},
		{"resources", x.resources},
		{"logs", func(ctx context.Context) { x.podLogs(ctx, known) }},
		{"status and version", o.ownOutput(x)},
		{"preflight", o.checks(x)},
	} {
		p.show("collecting " + part.what)
		part.work(ctx)
		if err := errors.Join(ctx.Err(), x.err); err != nil {
			return err
		}
	}
	x.put("unread.txt", []byte(strings.Join(append([]string{completeness(x.failed)}, x.unread...), "\n")+"\n"))
	return x.err
}

// put writes a file, without what is hidden.
func (x *collection) put(name string, data []byte) {
	if x.err != nil {
		return
	}
	data = x.hide.clean(data)
	x.files++
	h := &tar.Header{Name: "vdo-support/" + x.hide.cleanText(name), Mode: 0o600, Size: int64(len(data)), ModTime: x.app.now().UTC().Truncate(time.Second), Typeflag: tar.TypeReg}
	if x.err = x.tar.WriteHeader(h); x.err == nil {
		_, x.err = x.tar.Write(data)
	}
}

// putYAML writes a value. Its texts are cleaned before: YAML breaks, indents and quotes them
// so that a value in them is not known again.
func (x *collection) putYAML(name string, value any) {
	value, err := x.hide.object(value)
	if err != nil {
		x.miss(name, err)
		return
	}
	data, err := yaml.Marshal(value)
	if err != nil {
		x.miss(name, err)
		return
	}
	x.put(name, data)
}

// miss notes what is not in the archive.
func (x *collection) miss(what string, err error) {
	x.unread = append(x.unread, x.hide.cleanText(what+": "+strings.ReplaceAll(err.Error(), "\n", " ")))
}

// ownOutput is what status and version print.
func (o *supportOptions) ownOutput(x *collection) func(context.Context) {
	return func(ctx context.Context) {
		status, err := readStatus(ctx, x.client, x.ns)
		if err != nil {
			x.missed("status", err)
		} else {
			var text bytes.Buffer
			_ = (&statusOptions{app: x.plain(&text), prose: true}).text(&text, status) // a buffer takes all
			x.put("status.txt", text.Bytes())
			x.putYAML("status.yaml", status)
		}
		version := versionReport{Client: o.build}
		if err := (&versionOptions{app: o.app}).observe(ctx, &version); err != nil {
			x.missed("version", err)
		}
		x.putYAML("version.yaml", version)
	}
}

// plain is the program as it prints into a file.
func (x *collection) plain(w io.Writer) *app {
	a := *x.app
	a.out, a.terminal = w, false
	return &a
}

// missed is miss, of what the archive is incomplete without.
func (x *collection) missed(what string, err error) {
	x.failed = true
	if right := clusterstate.MissingRight(err); right != "" {
		err = errors.New("no right to " + right)
	}
	x.miss(what, err)
}

func (o *supportOptions) checks(x *collection) func(context.Context) {
	return func(ctx context.Context) {
		if o.noPreflight {
			return
		}
		snapshot, policy, err := o.gather(ctx, siteFlags{}, false)
		switch {
		case fault.ReasonOf(err) == fault.NotFound: // nothing is configured, which the resources say too
			x.miss("preflight", err)
			return
		case err != nil:
			x.missed("preflight", err)
			return
		}
		r := checkReport{Results: preflight.Turned(preflight.Check(snapshot), policy)}
		r.Verdict = preflight.Worst(r.Results)
		var text bytes.Buffer
		_ = (&checkOptions{app: x.plain(&text), all: true}).text(&text, r)
		x.put("preflight.txt", text.Bytes())
		x.putYAML("preflight.yaml", r)
	}
}

// completeness is what the archive and the report say of all of it.
func completeness(failed bool) string {
	if failed {
		return "incomplete: something that is there could not be read"
	}
	return "complete: all that is there was read"
}

func (r supportReport) text(w io.Writer) error {
	l := &lines{w: w}
	l.printf("%s: %s, %d bytes", r.File, command.Plural(r.Files, "file", "files"), r.Bytes)
	l.printf("%s", completeness(r.Incomplete))
	if len(r.Unread) > 0 {
		l.printf("not in it:")
	}
	for _, u := range r.Unread {
		l.printf("  %s", u)
	}
	l.printf("Look into it before you hand it on: names and addresses of the site are in it.")
	return l.err
}
