package vdoctl

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
)

// operatorNamespace is where the operator and its resources are.
const operatorNamespace = "vmware-system-vdo"

// requestTimeout bounds each request to the API server.
const requestTimeout = 30 * time.Second

// clusterFlags say which cluster, as kubectl's do.
type clusterFlags struct {
	kubeconfig, context, namespace string
}

func (f *clusterFlags) bind(fl *pflag.FlagSet) {
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` to reach the cluster with (default: KUBECONFIG, ~/.kube/config)")
	fl.StringVar(&f.context, "context", "", "`NAME` of the context in it")
	fl.StringVarP(&f.namespace, "namespace", "n", operatorNamespace, "`NAMESPACE` of the operator and its resources")
}

// config is how to reach the cluster.
func (f *clusterFlags) config() (*rest.Config, error) {
	rules, loader := f.loader()
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, f.unread(rules, err)
	}
	cfg.Timeout, cfg.QPS, cfg.Burst = requestTimeout, 50, 100
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg, nil
}

func (f *clusterFlags) loader() (*clientcmd.ClientConfigLoadingRules, clientcmd.ClientConfig) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	return rules, clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context})
}

// target returns the context and the API server that commands write to, as prompts name them.
func (f *clusterFlags) target() (string, error) {
	cfg, err := f.config()
	if err != nil {
		return "", err
	}
	_, loader := f.loader()
	raw, err := loader.RawConfig()
	if name := cmp.Or(f.context, raw.CurrentContext); err == nil && name != "" {
		return fmt.Sprintf("context %s (%s)", name, cfg.Host), nil
	}
	return cfg.Host, nil // in a pod: no kubeconfig
}

// named is how a prompt names the cluster after what else is changed; "" where none is configured.
func (f *clusterFlags) named() string {
	target, err := f.target()
	if err != nil {
		return ""
	}
	return ", " + target
}

// unread is why the kubeconfig cannot be used. A file or a context that was named and is not
// there is not found, as everywhere, and so is one that nothing names; what cannot be understood is bad input.
func (f *clusterFlags) unread(rules *clientcmd.ClientConfigLoadingRules, err error) error {
	out := &fault.Error{Reason: fault.InvalidInput, Op: "read the kubeconfig", Subject: f.kubeconfig, Err: err,
		Hint: "name one with --kubeconfig or KUBECONFIG, and a context in it with --context"}
	read, unread := rules.Load()
	switch {
	case errors.Is(err, os.ErrNotExist):
		out.Reason, out.Err = fault.NotFound, errors.New("no such file")
	case errors.Is(err, os.ErrPermission):
		out.Reason, out.Err = fault.Storage, errors.New("permission denied")
	case unread == nil && clientcmdapi.IsConfigEmpty(read):
		out.Reason, out.Err = fault.NotFound, fmt.Errorf("there is none at %s", strings.Join(rules.GetLoadingPrecedence(), " or "))
	case unread == nil && f.context != "" && read.Contexts[f.context] == nil:
		out.Reason, out.Err = fault.NotFound, fmt.Errorf("it has no context %q", f.context)
	case unread != nil:
		out.Hint = "name a file that `kubectl config view --kubeconfig FILE` shows with --kubeconfig or KUBECONFIG"
	}
	return out
}

// kubectl is how it reaches the same namespace of the same cluster.
func (f *clusterFlags) kubectl() []string {
	line := []string{"kubectl"}
	for _, x := range [][2]string{{"--kubeconfig", f.kubeconfig}, {"--context", f.context}, {"-n", f.namespace}} {
		if x[1] != "" {
			line = append(line, x[0], x[1])
		}
	}
	return line
}

// isNamed tells whether flags say which cluster is meant: then it is not gone on without.
func (f *clusterFlags) isNamed() bool { return f.kubeconfig != "" || f.context != "" }

// client reads from the cluster.
func (f *clusterFlags) client() (client.Client, error) {
	cfg, err := f.config()
	if err != nil {
		return nil, err
	}
	s, err := newScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		return nil, clusterFault("reach the cluster", err)
	}
	return c, nil
}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, airship.AddToScheme} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// clusterFault tells the ways apart in which the API server refuses or is away.
func clusterFault(op string, err error) error { return clusterstate.Fault(op, err) }
