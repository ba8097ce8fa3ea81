package sipcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

func digest(c string) string { return "sha256:" + strings.Repeat(c, 64) }

func TestImagesOfTheBundle(t *testing.T) {
	const text = "docker.io/library/haproxy:2.8.9"
	ref, refErr := image.ParseReference(text)
	v, err := matrix.ParseVersion("2.8.9")
	require.NoError(t, errors.Join(refErr, err))
	lock := &bundle.Lock{
		Images:   []bundle.Image{{Reference: ref, Digest: image.MustDigest(digest("a")), UsedBy: []string{"haproxy@2.8.9"}}},
		Releases: []bundle.Release{{Driver: "haproxy", Version: v, Images: map[string]string{text: text}}},
	}
	doc := &matrix.Document{Services: []matrix.ServiceRelease{
		{ReleaseID: matrix.ReleaseID{Driver: matrix.HAProxy, Version: v}, State: matrix.LTS, Image: text},
	}}
	images := imagesOf(lock, doc, "mirror.site/vdo/services")
	got, err := images(services.LoadBalancerWorker)
	require.NoError(t, err)
	require.Equal(t, "mirror.site/vdo/services@"+digest("a"), got)
	for kind, message := range map[services.Kind]string{
		services.Auth:     "dex: the bundle holds no release of it",
		services.JumpHost: "vdo-jumphost: the bundle holds no release of it",
	} {
		_, err := images(kind)
		require.ErrorContains(t, err, message)
		require.Equal(t, fault.NotFound, fault.ReasonOf(err))
		require.NotEmpty(t, fault.HintOf(err))
	}
}

func TestBundlesThatAreUsed(t *testing.T) {
	condition := func(status metav1.ConditionStatus, generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionVerified, Status: status, ObservedGeneration: generation, Message: "no key signed it"}}
	}
	for name, c := range map[string]struct {
		digest string
		conds  []metav1.Condition
		policy string
		reason fault.Reason
	}{
		"verified":           {digest: digest("a"), conds: condition(metav1.ConditionTrue, 2)},
		"not looked at yet":  {digest: digest("a"), reason: fault.Unreachable},
		"of an earlier spec": {digest: digest("a"), conds: condition(metav1.ConditionTrue, 1), reason: fault.Unreachable},
		"of another policy":  {digest: digest("a"), conds: condition(metav1.ConditionTrue, 2), policy: "an earlier one", reason: fault.Unreachable},
		"not known":          {digest: digest("a"), conds: condition(metav1.ConditionUnknown, 2), reason: fault.Unreachable},
		"not signed":         {digest: digest("a"), conds: condition(metav1.ConditionFalse, 2), reason: fault.Untrusted},
		"none accepted":      {conds: condition(metav1.ConditionTrue, 2), reason: fault.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.DriverBundle{ObjectMeta: metav1.ObjectMeta{Name: "b", Generation: 2}}
			b.Status.Digest, b.Status.Conditions, b.Status.VerifiedPolicy = c.digest, c.conds, cmp.Or(c.policy, "of now")
			require.Equal(t, c.reason, fault.ReasonOf(verified(b, "of now")))
		})
	}
}

const networkData = `{
 "links": [{"id": "eno4", "type": "phy", "mtu": 1500}, {"id": "bond0.41", "type": "vlan", "vlan_link": "bond0"}],
 "networks": [
  {"id": "oam-ipv6", "type": "ipv6", "link": "bond0.41", "network_id": "oam", "ip_address": "2001:1890:1001:293d::139", "routes": [{"network": "::/0", "gateway": "2001:1890:1001:293d::1"}]},
  {"id": "oam-ipv4", "type": "ipv4", "link": "bond0.41", "network_id": "oam", "ip_address": "32.68.51.139", "netmask": "255.255.255.128"},
  {"id": "pxe", "type": "ipv4", "link": "eno4", "ip_address": "172.30.0.11/25"},
  {"id": "pxe", "type": "ipv6", "link": "eno4", "ip_address": "fd00:900:100:138::11"},
  {"id": "twice", "type": "ipv4", "link": "a", "ip_address": "10.0.0.1"},
  {"id": "twice", "type": "ipv4", "link": "b", "ip_address": "10.0.0.2"},
  {"id": "mapped", "type": "ipv6", "link": "f", "ip_address": "::ffff:10.0.0.3"},
  {"id": "dynamic", "type": "ipv4_dhcp", "link": "eno5"},
  {"id": "wrong", "type": "ipv4", "link": "c", "ip_address": "10.0.0"},
  {"id": "local", "type": "ipv4", "link": "d", "ip_address": "127.0.0.1"},
  {"id": "linklocal", "type": "ipv6", "link": "e", "ip_address": "fe80::1"}
 ]}`

const asYAML = `
networks:
  - {id: only, type: ipv4, link: eth0, ip_address: 10.0.0.5}
  - {id: also, type: ipv6, link: eth0, ip_address: "fd00::5"}
`

func TestAddressesOfNetworkData(t *testing.T) {
	for name, c := range map[string]struct {
		networks, id string
		want         []string
		reason       fault.Reason
		message      string
	}{
		"v4":                 {networks: networkData, id: "oam-ipv4", want: []string{"32.68.51.139"}},
		"v6":                 {networks: networkData, id: "oam-ipv6", want: []string{"2001:1890:1001:293d::139"}},
		"both, v4 first":     {networks: networkData, id: "pxe", want: []string{"172.30.0.11", "fd00:900:100:138::11"}},
		"by network_id":      {networks: networkData, id: "oam", want: []string{"32.68.51.139", "2001:1890:1001:293d::139"}},
		"by link":            {networks: networkData, id: "bond0.41", want: []string{"32.68.51.139", "2001:1890:1001:293d::139"}},
		"YAML, the only one": {networks: asYAML, want: []string{"10.0.0.5", "fd00::5"}},
		"unknown":            {networks: asYAML, id: "oam", reason: fault.NotFound, message: `no address on network "oam"; networks: "also", "only"`},
		"nothing":            {reason: fault.NotFound, message: "networks: none"},
		"IPv4 as IPv6":       {networks: networkData, id: "mapped", want: []string{"10.0.0.3"}},
		"by DHCP":            {networks: networkData, id: "dynamic"},
		"two of a family":    {networks: networkData, id: "twice", reason: fault.InvalidInput, message: `network "twice" has 2 addresses`},
		"several and no id":  {networks: asYAML + "  - {id: third, type: ipv4, ip_address: 10.0.0.6}\n", reason: fault.InvalidInput, message: `network "" has 3 addresses; networks: "also", "only", "third"`},
		"no address":         {networks: networkData, id: "wrong", reason: fault.InvalidInput, message: `network "wrong": its ip_address is no address`},
		"loopback":           {networks: networkData, id: "local", reason: fault.InvalidInput, message: "no address that other machines can use"},
		"link-local":         {networks: networkData, id: "linklocal", reason: fault.InvalidInput, message: "no address that other machines can use"},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := parseNetworks([]byte(c.networks))
			require.NoError(t, err)
			got, err := addressesOn(all, c.id)
			if c.message != "" {
				require.Contains(t, fault.Text(err), c.message)
				require.Equal(t, c.reason, fault.ReasonOf(err))
				require.NotEmpty(t, fault.HintOf(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, strings.Join(c.want, " "), strings.Trim(fmt.Sprint(got), "[]"))
		})
	}
}

// What cannot be read is told of without a byte of it.
func TestNetworkDataThatCannotBeRead(t *testing.T) {
	for _, document := range []string{"s3cret: [", `{"networks": "s3cret"}`, `["s3cret"]`} {
		_, err := parseNetworks([]byte(document))
		require.ErrorContains(t, err, "network data cannot be read")
		require.NotContains(t, fault.Text(err), "s3cret")
	}
}

// Else who can write a host could have the operator read any Secret.
func TestAHostNamesNoSecretOfAnotherNamespace(t *testing.T) {
	h := &choose.Host{BareMetalHost: hostIn("h", "", "OK")}
	h.Spec.NetworkData = corev1.SecretReference{Namespace: "others", Name: "n"}
	_, _, err := new(pass).readNetworks(t.Context(), h)
	require.ErrorContains(t, err, "it names the Secret others/n, of another namespace")
}

func metered(t *testing.T, m *Meter) (map[string]float64, error) {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(m))
	all, err := registry.Gather()
	series := map[string]float64{}
	for _, f := range all {
		for _, one := range f.GetMetric() {
			name := f.GetName()
			for _, l := range one.GetLabel() {
				name += " " + l.GetValue()
			}
			series[name] = one.GetGauge().GetValue()
		}
	}
	return series, err
}

func hostIn(name, claim string, operational string) *choose.BareMetalHost {
	o := &choose.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "m", Name: name}}
	o.Status.Provisioning.State, o.Status.OperationalStatus = "available", operational
	if claim != "" {
		o.Annotations = map[string]string{airship.AnnotationClaim: claim}
	}
	return o
}

func ready(name string, status metav1.ConditionStatus, reason string) *airship.SIPCluster {
	return &airship.SIPCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: name}, Status: airship.SIPClusterStatus{
		Conditions: []metav1.Condition{{Type: "Ready", Status: status, Reason: reason}},
	}}
}

// site has a host in each state, and a SIPCluster of each kind.
func site(t *testing.T) *Meter {
	labelled, old := hostIn("labelled", "Worker t/one", "OK"), hostIn("old", "", "OK")
	for name, o := range map[string]*choose.BareMetalHost{"one": labelled, "gone": old} {
		o.Labels = map[string]string{
			airship.LabelClusterNamespace: "t", airship.LabelClusterName: name, airship.LabelNodeType: "Worker",
		}
	}
	one, lacks := ready("one", "True", airship.ReasonSucceeded), ready("lacks", "False", airship.ReasonUnschedulable)
	one.Status.Services = []airship.ServiceStatus{{Name: "a", Ready: true}, {Name: "b"}}
	lacks.Status.Missing = []airship.MissingHosts{{Role: airship.RoleWorker, Count: 3}, {Role: "Tenant's word", Count: 1}}
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(airship.AddToScheme(scheme), choose.AddToScheme("v1beta1")(scheme)))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(labelled, old, hostIn("free", "", "OK"), hostIn("unfit", "", "error"), hostIn("claimed", "Worker t/one", "OK"),
		hostIn("failed", "ControlPlane t/one", "error"), hostIn("gone", "Worker t/gone", "OK"), hostIn("nonsense", "x", "OK"),
		one, lacks, &airship.SIPCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "t", Name: "new"}})
	return NewMeter(c.Build(), "v1.2.3")
}

func TestHostsAndServicesAreMetered(t *testing.T) {
	series, err := metered(t, site(t))
	require.NoError(t, err)
	maps.DeleteFunc(series, func(name string, _ float64) bool { return strings.HasPrefix(name, "vdo_sip_build_info") })
	require.Equal(t, map[string]float64{
		"vdo_sip_hosts free": 1, "vdo_sip_hosts unfit": 1, "vdo_sip_hosts claimed": 1, "vdo_sip_hosts labelled": 1, "vdo_sip_hosts failed": 1, "vdo_sip_hosts orphaned": 3,
		"vdo_sip_ready t/one": 1, "vdo_sip_ready t/lacks": 0, "vdo_sip_ready t/new": 0,
		"vdo_sip_services t/one ready": 1, "vdo_sip_services t/one not_ready": 1,
		"vdo_sip_services t/lacks ready": 0, "vdo_sip_services t/lacks not_ready": 0, "vdo_sip_services t/new ready": 0,
		"vdo_sip_services t/new not_ready":     0,
		"vdo_sip_hosts_missing Worker t/lacks": 3, "vdo_sip_hosts_missing ControlPlane t/lacks": 0,
		"vdo_sip_hosts_missing Worker t/one": 0, "vdo_sip_hosts_missing ControlPlane t/one": 0, "vdo_sip_hosts_missing Worker t/new": 0,
		"vdo_sip_hosts_missing ControlPlane t/new": 0,
	}, series)
}

func TestAScrapeFailsWhereHostsCannotBeRead(t *testing.T) {
	failing := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("the cache is not filled")
	}}
	_, err := metered(t, NewMeter(interceptor.NewClient(fake.NewClientBuilder().Build(), failing), "v1"))
	require.ErrorContains(t, err, "the cache is not filled")
}

// A deletion that cannot go on is tried again each minute, and soon only while its own work goes on.
func TestWhenASIPClusterIsLookedAtAgain(t *testing.T) {
	sip, now := &airship.SIPCluster{}, time.Now()
	since := metav1.NewTime(now.Add(-time.Hour))
	sip.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, LastTransitionTime: since}}
	for name, c := range map[string]struct {
		deleting         bool
		ready            metav1.ConditionStatus
		interval, atMost time.Duration
	}{
		"a fault":                {false, metav1.ConditionFalse, 7*time.Minute + 30*time.Second, maxSoon},
		"a deletion with faults": {true, metav1.ConditionFalse, time.Minute, 0},
		"a deletion that works":  {true, metav1.ConditionUnknown, time.Minute, maxSoon},
	} {
		p := &pass{Reconciler: &Reconciler{Now: func() time.Time { return now }}, again: true}
		p.cluster.Deleting = c.deleting
		next := outcome{p, judgement{status: c.ready}}.Next(sip)
		require.Equal(t, reconciler.Next{Interval: c.interval, AtMost: c.atMost}, next, name)
	}
}
