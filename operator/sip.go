package operator

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/sipcluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

const (
	// DefaultSIPNamespace is the namespace of the operator for SIPClusters.
	DefaultSIPNamespace = "vmware-system-sip"

	sipLeaseName = "vdo-operator-sip"

	// sipTemplates is where deploy/sip/operator.yaml mounts an administrator's templates of load balancers.
	sipTemplates = "/etc/vdo/load-balancers"
)

// SIPOptions are for the controllers of SIPClusters.
type SIPOptions struct {
	// Egress has the CIDRs that services may connect to, separated by commas.
	Egress string
}

func (o SIPOptions) egress() (all []netip.Prefix, err error) {
	for _, text := range strings.FieldsFunc(o.Egress, func(r rune) bool { return r == ',' }) {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fault.Errorf(fault.InvalidInput, "read flag", "--sip-egress",
				"write CIDRs with commas between them, such as 10.20.0.0/16,fd00:20::/48", "%w", err)
		}
		all = append(all, p)
	}
	return all, nil
}

// runSIP runs the controllers of SIPClusters, and of DriverBundles in their namespace: the services' images come from
// a bundle that was verified there.
func runSIP(ctx context.Context, cfg *rest.Config, o Options) error {
	o.Namespace = cmp.Or(o.Namespace, DefaultSIPNamespace)
	egress, err := o.SIP.egress()
	if err != nil {
		return err
	}
	for _, needed := range [][2]string{
		{v1alpha1.GroupVersion.String(), "`vdo-bundle install-manifests BUNDLE --sip | kubectl apply -f -`"},
		{airship.GroupVersion.String(), "`vdo-bundle install-manifests BUNDLE --sip | kubectl apply -f -`"},
		{"metal3.io", "install Metal3's BareMetalHost"},
	} {
		if err := reachable(ctx, cfg, needed[0], needed[1]); err != nil {
			return err
		}
	}
	hosts, err := hostVersion(ways(cfg))
	if err != nil {
		return err
	}
	mgr, err := newManager(ways(cfg), o, sipLeaseName, sipCache(o.Namespace), choose.AddToScheme(hosts))
	if err != nil {
		return err
	}
	openShift, err := serves(ctx, cfg, "security.openshift.io/v1")
	if err != nil {
		return err
	}
	meter := sipcluster.NewMeter(mgr.GetCache(), o.Version)
	return o.start(ctx, mgr, meter, func() error {
		bundles := newBundles(mgr, o)
		clusters := sipcluster.Options{
			Namespace: o.Namespace, AssignsUsers: openShift, Egress: egress, Templates: os.DirFS(sipTemplates),
			Bundles: &sipcluster.Accepted{
				Reader: mgr.GetClient(), Secrets: mgr.GetAPIReader(), Namespace: o.Namespace, Store: bundles.Store,
				FloorID: o.TrustFloorID,
			},
		}
		return errors.Join(bundles.SetupWithManager(mgr, mgr.GetCache()), sipcluster.SetupWithManager(mgr, clusters))
	})
}

// hostVersion returns the version of BareMetalHosts that the API server prefers. It fails if the API server lacks these
// or the admission policies that protect them.
func hostVersion(cfg *rest.Config) (string, error) {
	via, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return "", err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(cfg, via)
	if err != nil {
		return "", err
	}
	hosts, err := mapper.RESTMapping(schema.GroupKind{Group: "metal3.io", Kind: "BareMetalHost"})
	hint := "install Metal3's BareMetalHost"
	if err == nil {
		// Without it nothing reserves the allocation of hosts.
		policies := schema.GroupKind{Group: admissionv1.GroupName, Kind: "ValidatingAdmissionPolicy"}
		_, err = mapper.RESTMapping(policies, "v1")
		hint = "upgrade Kubernetes to 1.30 or later"
	}
	if meta.IsNoMatchError(err) {
		return "", fault.Errorf(fault.NotFound, "ask the API server", cfg.Host, hint, "%w", err)
	} else if err != nil {
		return "", clusterstate.Fault("ask the API server for BareMetalHosts", err)
	}
	return hosts.GroupVersionKind.Version, nil
}

// serves reports whether the API server has a group of kinds.
func serves(ctx context.Context, cfg *rest.Config, group string) (bool, error) {
	err := reachable(ctx, cfg, group, "")
	if fault.ReasonOf(err) == fault.NotFound {
		return false, nil
	}
	return err == nil, err
}

// sipCache limits the caches: in the operator's namespace to what a DriverBundle needs. Elsewhere they have
// SIPClusters, hosts, and the objects of SIPClusters, but no Secret.
func sipCache(namespace string) cache.Options {
	all := cacheOptions(namespace)
	all.ByObject = sipcluster.CacheOptions()
	return all
}
