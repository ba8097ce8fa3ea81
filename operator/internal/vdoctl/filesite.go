package vdoctl

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/pflag"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// maxFile bounds what is read of a file.
const maxFile = 4 << 20

// passwordEnv is the environment variable with the vCenters' password.
const passwordEnv = "VDO_VCENTER_PASSWORD" //nolint:gosec // a name

// siteFlags say where the configuration is.
type siteFlags struct {
	file, username, passwordFile string
	typedFor                     []string // servers that a password that was typed goes to
}

func (f *siteFlags) bind(fl *pflag.FlagSet) {
	fl.StringVarP(&f.file, "from-file", "f", "", "`FILE` with the VDOConfig, VsphereCloudConfigs and, where it has them, Secrets and ConfigMaps; - for standard input (default: what is in the cluster)")
	fl.StringVar(&f.username, "username", "", "`NAME@DOMAIN` of the vCenters' account, where its Secret is not in the file")
	fl.StringVar(&f.passwordFile, "password-file", "", "`FILE` with its password (else "+passwordEnv+", or a prompt)")
}

// effective refuses flags without an effect. The account is used where it is not in the
// file, or, with instead, in the place of the Secret's.
func (f *siteFlags) effective(instead bool) error {
	switch {
	case f.passwordFile != "" && f.username == "":
		return flags.Bad("--password-file", f.passwordFile, errors.New("--username is not given"), "give both, or none")
	case f.username != "" && f.file == "" && !instead:
		return flags.Bad("--username", f.username, errors.New("the accounts are those of the Secrets in the cluster"), "leave it out, or check a file: --from-file")
	}
	return nil
}

// fileSite reads the configuration from a file.
func (f *siteFlags) fileSite(a *app) (site, error) {
	data, err := a.read(f.file)
	if err != nil {
		return site{}, err
	}
	read, err := parseSite(f.file, data)
	if err != nil {
		return site{}, err
	}
	if read.config != nil {
		if err := preflight.Valid(read.config.Spec.Preflight); err != nil {
			return site{}, err
		}
	}
	s := siteOf(read.config, read.vcenters, read)
	f.asks(a, &s)
	return s, nil
}

func (a *app) read(name string) ([]byte, error) {
	file := a.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fileFault(name, err)
		}
		defer func() { _ = f.Close() }()
		file = f
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it is longer than %d MiB", maxFile>>20)
	}
	if err != nil {
		return nil, fileFault(name, err)
	}
	return data, nil
}

func fileFault(name string, err error) error {
	f := &fault.Error{Reason: fault.Storage, Op: "read", Subject: name, Err: err, Hint: "name a file that can be read"}
	if errors.Is(err, os.ErrNotExist) {
		f.Reason, f.Err = fault.NotFound, errors.New("no such file")
	}
	return f
}

// objects are what a file holds. It is a reader of the Secrets and ConfigMaps among them.
type objects struct {
	client.Reader

	config   *v1alpha1.VDOConfig
	bundle   *v1alpha1.DriverBundle
	vcenters []v1alpha1.VsphereCloudConfig
	secrets  map[client.ObjectKey]*corev1.Secret
	maps     map[client.ObjectKey]*corev1.ConfigMap
}

// Get finds a Secret or ConfigMap.
func (o *objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *corev1.Secret:
		if s, ok := o.secrets[key]; ok {
			s.DeepCopyInto(into)
			return nil
		}
	case *corev1.ConfigMap:
		if m, ok := o.maps[key]; ok {
			m.DeepCopyInto(into)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// parseSite reads YAML or JSON documents. What is of no interest here is passed over; a
// field that is not known is an error, since a slip would go unseen.
func parseSite(name string, data []byte) (*objects, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	out := &objects{secrets: map[client.ObjectKey]*corev1.Secret{}, maps: map[client.ObjectKey]*corev1.ConfigMap{}}
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = out.decode(decoder, doc)
		}
		if err != nil {
			return nil, &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: fmt.Sprintf("%s, document %d", name, n), Err: err, Hint: "correct the file: kubectl apply --dry-run=server -f FILE says more"}
		}
	}
	if out.config == nil && len(out.vcenters) == 0 {
		return nil, &fault.Error{Reason: fault.NotFound, Op: "read", Subject: name, Err: errors.New("it has neither a VDOConfig nor a VsphereCloudConfig"),
			Hint: "name the file that you would apply; deploy/samples has examples"}
	}
	return out, nil
}

// decode reads one document.
func (o *objects) decode(decoder runtime.Decoder, doc []byte) error {
	if blank(doc) {
		return nil
	}
	object, _, err := decoder.Decode(doc, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return o.add(object)
}

// blank says whether a document has nothing, or comments only.
func blank(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		if l := bytes.TrimSpace(line); len(l) > 0 && l[0] != '#' && !bytes.Equal(l, []byte("---")) {
			return false
		}
	}
	return true
}

func (o *objects) add(object runtime.Object) error {
	switch object := object.(type) {
	case *v1alpha1.VDOConfig:
		if o.config != nil {
			return errors.New("a second VDOConfig: a cluster has one")
		}
		o.config = object
	case *v1alpha1.DriverBundle:
		o.bundle = object
	case *v1alpha1.VsphereCloudConfig:
		o.vcenters = append(o.vcenters, *object)
	case *corev1.Secret:
		if object.Data == nil {
			object.Data = map[string][]byte{}
		}
		for k, v := range object.StringData {
			object.Data[k] = []byte(v)
		}
		o.secrets[client.ObjectKeyFromObject(object)] = object
	case *corev1.ConfigMap:
		o.maps[client.ObjectKeyFromObject(object)] = object
	}
	return nil
}

// asks has the account of the flags used where a Secret is not there.
func (f *siteFlags) asks(a *app, s *site) {
	s.ask = f.asker(a)
	password := "the password that you type"
	if _, set := a.getenv(passwordEnv); set {
		password = "the password in " + passwordEnv
	}
	if f.passwordFile != "" {
		password = "the password in --password-file " + fault.Quote(f.passwordFile)
	}
	s.given = "--username, or " + password
}

// asker returns how an account is found whose Secret is not in the file: the flags and the
// environment, then the terminal. It is asked for once.
func (f *siteFlags) asker(a *app) func(context.Context, string) (credentials.Credentials, error) {
	var known *credentials.Credentials
	return func(ctx context.Context, server string) (credentials.Credentials, error) {
		if known != nil {
			f.alsoAt(a, server)
			return *known, nil
		}
		if f.username == "" {
			return credentials.Credentials{}, &fault.Error{Reason: fault.NotFound, Op: "read the credentials of", Subject: server,
				Err: errors.New("its Secret is not in the file"), Hint: "put the Secret into the file, or give --username and --password-file, " + passwordEnv + " or a terminal"}
		}
		password, err := f.password(ctx, a, server)
		if err != nil {
			return credentials.Credentials{}, err
		}
		known = &credentials.Credentials{Username: f.username, Password: string(password)}
		return *known, nil
	}
}

// password returns the account's. Who types it sees where it goes: the server's name is
// in a resource that somebody else may have written.
func (f *siteFlags) password(ctx context.Context, a *app, server string) ([]byte, error) {
	if f.passwordFile != "" {
		data, err := a.read(f.passwordFile)
		return bytes.TrimRight(data, "\r\n"), err
	}
	if p, ok := a.getenv(passwordEnv); ok {
		return []byte(p), nil
	}
	if a.in == nil || !term.IsTerminal(int(a.in.Fd())) {
		return nil, flags.Bad("--username", f.username, errors.New("no password, and no terminal to ask for one"), "name a file with --password-file, or set "+passwordEnv)
	}
	f.typedFor = []string{server}
	_, _ = fmt.Fprintf(a.err, "Password of %s at %q: ", f.username, server)
	defer func() { _, _ = fmt.Fprintln(a.err) }()
	return a.hiddenLine(ctx)
}

// alsoAt tells of each further server that a typed password goes to.
func (f *siteFlags) alsoAt(a *app, server string) {
	if len(f.typedFor) > 0 && !slices.Contains(f.typedFor, server) {
		f.typedFor = append(f.typedFor, server)
		_, _ = fmt.Fprintf(a.err, "The same password is used at %q.\n", server)
	}
}
