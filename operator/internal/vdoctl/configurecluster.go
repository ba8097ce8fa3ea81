package vdoctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
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
		err := d.readCluster(ctx, c, func(r resources) error { return o.sameSite(d, r.vcenters) })
		switch {
		case o.write != "" && errors.Is(err, errAnother):
			c, err = nil, command.Say(o.err, "The cluster has another VDOConfig than %s: nothing is taken of it.", d.config.Name)
		case o.write != "" && errors.Is(err, errElsewhere):
			c, err = nil, command.Say(o.err, "The cluster is another site's, where %v: nothing is taken of it.", err)
		case o.write != "" && errors.Is(err, errNoKinds):
			c, err = nil, command.Say(o.err, "The cluster does not know the operator's resources: nothing is taken of it.")
		case err == nil:
			d.readers = append(d.readers, c)
			err = o.sayBegun(d)
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

// sayBegun says which cluster a new file is begun with: the kubeconfig may be another site's.
func (o *configureOptions) sayBegun(d *draft) error {
	if o.write == "" || d.file != nil {
		return nil
	}
	cfg, err := o.cluster.config()
	if err != nil {
		return err
	}
	return command.Say(o.err, "Begun with what the cluster at %s has.", cfg.Host)
}

// sameSite refuses a cluster whose vCenter of the same name is at another address than that of the
// file that is written, and than flags say: most sites give it the same name.
func (o *configureOptions) sameSite(d *draft, there []v1alpha1.VsphereCloudConfig) error {
	if o.write == "" || d.file == nil {
		return nil
	}
	for i := range d.vcenters {
		v := &d.vcenters[i]
		fits := []string{addressOf(v.Spec.VcIP, v.Spec.Port)}
		if v.Name == o.vcenter || !o.given("vcenter") && i == 0 {
			fits = append(fits, o.address(&v.Spec))
		}
		for j := range there {
			at := addressOf(there[j].Spec.VcIP, there[j].Spec.Port)
			if there[j].Name == v.Name && !slices.Contains(fits, at) {
				return fmt.Errorf("VsphereCloudConfig %s %w, %s and not %s", v.Name, errElsewhere, at, fits[0])
			}
		}
	}
	return nil
}

// address is a vCenter's, as flags change it.
func (o *configureOptions) address(v *v1alpha1.VsphereCloudConfigSpec) string {
	host, port := v.VcIP, v.Port
	if o.given("server") {
		host = o.server
	}
	if n, err := strconv.ParseInt(o.port, 10, 32); err == nil && o.given("port") {
		port = int32(n)
	}
	return addressOf(host, port)
}

// addressOf is one form of what may be written in several.
func addressOf(host string, port int32) string {
	return net.JoinHostPort(strings.ToLower(strings.TrimSpace(host)), strconv.Itoa(int(cmp.Or(port, 443))))
}

// knows tells whether the Secret's password may be tried at a vCenter: not at another one than those
// that the cluster has it for, whatever their names.
func (d *draft) knows(server string) bool {
	same := func(at string) bool { return strings.EqualFold(at, strings.TrimSpace(server)) }
	return len(d.passwordAt) == 0 || slices.ContainsFunc(d.passwordAt, same)
}

// users are the addresses of the cluster's vCenters that a Secret is for.
func (d *draft) users(secret string) (at []string) {
	for _, x := range d.before {
		if v, ok := x.(*v1alpha1.VsphereCloudConfig); ok && v.Spec.Credentials == secret {
			at = append(at, strings.TrimSpace(v.Spec.VcIP))
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// denied takes what may not be read of a cluster as not there, where a file is written: that needs
// no cluster. It is told, once for each right.
func (o *configureOptions) denied(err error) error {
	all := fault.All(err)
	other := func(f *fault.Error) bool { return f.Reason != fault.Forbidden && f.Reason != fault.NotFound }
	if o.write == "" || isMissing(err) || slices.ContainsFunc(all, other) {
		return err
	}
	for _, f := range all {
		right := cmp.Or(clusterstate.MissingRight(f), "read "+f.Subject)
		if f.Reason != fault.Forbidden || slices.Contains(o.lacks, right) {
			continue
		}
		o.lacks = append(o.lacks, right)
		if err := command.Say(o.err, "Your account has no right to %s: what is there is taken as not there.", right); err != nil {
			return err
		}
	}
	return nil
}
