package vdoctl

import (
	"context"
	"errors"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// reach is the cluster; nil where nothing is read of it or written to it: a file needs none. A
// kubeconfig that is there and cannot be used is an error: the file would lack what the cluster has.
func (o *configureOptions) reach() (client.Client, error) {
	c, err := o.cluster.client()
	switch {
	case o.write == "":
		return c, err
	case o.cluster.isNone(err):
		return nil, command.Say(o.err, "There is no kubeconfig: nothing is taken of a cluster.")
	}
	return c, o.orWithout(err)
}

// isNone tells whether there is no kubeconfig: none at all, and nothing else by which a cluster was
// reached; or KUBECONFIG names one that is empty, such as /dev/null.
func (f *clusterFlags) isNone(unreached error) bool {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	read, err := rules.Load()
	if f.isNamed() || err != nil || !clientcmdapi.IsConfigEmpty(read) {
		return false
	}
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		return unreached != nil
	}
	for _, name := range rules.GetLoadingPrecedence() {
		if _, err := os.Stat(name); err != nil {
			return false // it is misspelled, or gone
		}
	}
	return true
}

// orWithout has the hint of a fault about the cluster say that a file needs none.
func (o *configureOptions) orWithout(err error) error {
	var f *fault.Error
	if o.write == "" || !errors.As(err, &f) {
		return err
	}
	if f.Hint != "" {
		f.Hint += "; or "
	}
	f.Hint += "write the file without a cluster: set KUBECONFIG=/dev/null"
	if o.cluster.isNamed() {
		f.Hint += ", and leave out --kubeconfig and --context"
	}
	return err
}

// begin reads what there is in the cluster, and takes of it what the file does not have. It returns
// the cluster; nil where nothing is taken of it for the file that is written.
func (o *configureOptions) begin(ctx context.Context, c client.Client, d *draft) (client.Client, error) {
	if c != nil {
		err := d.readCluster(ctx, c)
		switch {
		case o.write != "" && errors.Is(err, errAnother):
			c, err = nil, command.Say(o.err, "The cluster has another VDOConfig than %s: nothing is taken of it.", d.config.Name)
		case o.write != "" && errors.Is(err, errNoKinds):
			c, err = nil, command.Say(o.err, "The cluster does not know the operator's resources: nothing is taken of it.")
		case err == nil:
			d.readers = append(d.readers, c)
		}
		if err != nil {
			return nil, o.orWithout(err)
		}
	}
	d.makeMissing()
	if !o.given("vcenter") && len(d.vcenters) > 0 {
		o.vcenter, o.kept["vcenter"] = d.vcenters[0].Name, true
	}
	return c, nil
}
