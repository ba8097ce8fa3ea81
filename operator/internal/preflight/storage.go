package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// area is the hosts that have to share a datastore: those of the nodes in a vCenter. With topology it is all hosts
// below the tags of one zone.
type area struct {
	vcenter *VCenter
	tags    []string
	hosts   []Ref
	nodes   int
}

// areas returns the areas by vCenter and, with topology, by the tags of all categories. Before 3.0 the storage driver
// uses the hosts of the nodes in a zone.
func (s *Snapshot) areas() []*area {
	at := map[string]*area{}
	var out []*area
	for _, b := range s.nodesMachines() {
		v := b.vcenter
		if !v.CSI {
			continue
		}
		zone := v.climb(s.Wants.Categories, v.Ancestors(b.machine.Host))
		tags, _ := tagsIn(zone)
		key := fmt.Sprintf("%s %q", v.Name, tags)
		a := at[key]
		if a == nil {
			a = &area{vcenter: v, tags: tags}
			at[key], out = a, append(out, a)
			if len(tags) > 0 && !Older(s.Wants.CSIVersion, "3.0.0") {
				a.hosts = v.hostsOf(zone)
			}
		}
		a.nodes++
		if !slices.Contains(a.hosts, b.machine.Host) {
			a.hosts = append(a.hosts, b.machine.Host)
		}
	}
	for _, a := range out {
		a.hosts = a.vcenter.working(a.hosts)
	}
	return out
}

// hostsOf returns all hosts below objects with each of these tags, as the storage driver finds them:
// vsphere-csi-driver v3.7.3, pkg/csi/service/common/topology.go, GetHostsForSegment.
func (v *VCenter) hostsOf(zone []Level) (out []Ref) {
	for r := range v.Objects {
		if r.Type != "HostSystem" {
			continue
		}
		chain := v.Ancestors(r)
		if !slices.ContainsFunc(zone, func(l Level) bool {
			return l.Tag != "" && !slices.ContainsFunc(chain, func(r Ref) bool {
				return slices.Contains(v.Tagged[r], Category{l.Category, l.Tag})
			})
		}) {
			out = append(out, r)
		}
	}
	return out
}

// working returns the hosts that are not in maintenance, which may disconnect their storage; all if none works.
func (v *VCenter) working(hosts []Ref) []Ref {
	out := slices.DeleteFunc(slices.Clone(hosts), func(h Ref) bool { return v.Objects[h].Maintenance })
	if len(out) == 0 {
		return hosts
	}
	return out
}

func sharedDatastores(s *Snapshot) (out []found) {
	for _, a := range s.areas() {
		f := found{on: a.vcenter.Name, object: strings.Join(a.tags, "/")}
		switch unread := a.vcenter.Failed; {
		case len(s.Wants.Categories) > 0 && unread[Tags] != nil: // all nodes count as one zone
		case len(a.shared(false)) == 0:
			f.what = "no supported datastore is seen by all hosts of the nodes or of their zone, and accessible"
		case unread[Privileges] == nil && len(a.shared(true)) == 0:
			f.what = "the account lacks Datastore.FileManagement on each datastore that all hosts see"
			f.remedy = "give it a role with that privilege on the datastores for volumes: `govc permissions.set -principal ACCOUNT -role NAME DATASTORE`"
		}
		out = append(out, f)
	}
	return out
}

func withoutVSAN(s *Snapshot, v *VCenter) []found {
	isVSAN := func(d Datastore) bool { return d.Type == "vsan" && d.Inside }
	if !s.Wants.FeaturesAt(v.Use, &s.Cluster).File || slices.ContainsFunc(v.Datastores, isVSAN) {
		return nil
	}
	return []found{{what: "no vSAN datastore in the configured datacenters: no file volume is made"}}
}

// supported reports whether the storage driver supports volumes on it: its documentation excludes NFS 4.1.
func (d *Datastore) supported() bool { return d.Type != "NFS41" }

// shared returns the datastores that all hosts mount; with usable, only those that the account may use for volumes.
func (a *area) shared(usable bool) (out []*Datastore) {
	for i := range a.vcenter.Datastores {
		d := &a.vcenter.Datastores[i]
		isWithout := func(h Ref) bool { return !d.Hosts[h] }
		if d.Accessible && d.supported() && (d.MayHold || !usable) && !slices.ContainsFunc(a.hosts, isWithout) {
			out = append(out, d)
		}
	}
	return out
}

// seenByAll returns the datastores that all hosts of the nodes, or of a zone, mount; nil without nodes.
func (s *Snapshot) seenByAll() (out map[*Datastore]bool) {
	for _, a := range s.areas() {
		if out == nil {
			out = map[*Datastore]bool{}
		}
		for _, d := range a.shared(false) {
			out[d] = true
		}
	}
	return out
}

func storageClasses(s *Snapshot) (out []found) {
	seen := s.seenByAll()
	for _, c := range s.Cluster.StorageClasses {
		f := found{object: c.Name}
		for _, v := range s.readable() {
			if c.Policy != "" && v.Failed[Policies] == nil && !slices.Contains(v.Policies, c.Policy) {
				out = append(out, found{on: v.Name, object: c.Name, of: c.Policy,
					what: "StorageClasses name a storage policy that the vCenter does not have"})
			}
		}
		if s.allowsNone(c) {
			out = append(out, found{object: c.Name,
				what:   "StorageClasses allow only topologies that no node has, by its labels and the keys of its CSINode",
				remedy: "correct its allowedTopologies, as `kubectl get nodes --show-labels` has them: `kubectl edit storageclass {}`; existing volumes stay"})
		}
		stores, known := s.stores(c, seen)
		switch mayHold := func(d *Datastore) bool { return d.MayHold }; {
		case !known:
		case len(stores) == 0:
			f.of = cmp.Or(c.DatastoreURL, c.Policy)
			f.what = "StorageClasses choose no supported datastore: no vCenter has theirs, their storage policy fits none, or not all hosts (of a zone) see it"
			f.remedy = "see the policy: vSphere Client > VM Storage Policies > Storage compatibility; and the class's datastoreurl: `govc datastore.info`; NFS 4.1 is not supported"
		case !slices.ContainsFunc(stores, mayHold):
			f.what = "the account lacks Datastore.FileManagement on each datastore that StorageClasses choose"
			f.remedy = "give it what it needs: `vdoctl users create --username ADMIN`; or as a script for the vCenter: `vdoctl users plan -o govc`"
		}
		out = append(out, f)
	}
	return out
}

// allowsNone reports whether a class allows no topology of a node that has one, as the provisioner looks for it.
func (s *Snapshot) allowsNone(c StorageClass) bool {
	hasKeys := func(n Node) bool { return len(n.TopologyKeys) > 0 }
	isAllowed := func(n Node) bool {
		lacks := func(e corev1.TopologySelectorLabelRequirement) bool {
			return !slices.Contains(n.TopologyKeys, e.Key) || !slices.Contains(e.Values, n.Zones[e.Key])
		}
		return slices.ContainsFunc(c.Allowed, func(t corev1.TopologySelectorTerm) bool {
			return !slices.ContainsFunc(t.MatchLabelExpressions, lacks)
		})
	}
	nodes := s.Cluster.Nodes
	return len(c.Allowed) > 0 && slices.ContainsFunc(nodes, hasKeys) && !slices.ContainsFunc(nodes, isAllowed)
}

// stores returns the datastores that a class selects by URL and storage policy in the storage driver's vCenters, of
// those that hosts see. They are unknown if a vCenter is, or if the class selects none.
func (s *Snapshot) stores(c StorageClass, seen map[*Datastore]bool) (out []*Datastore, known bool) {
	if c.Policy == "" && c.DatastoreURL == "" {
		return nil, false
	}
	for i := range s.VCenters {
		v := &s.VCenters[i]
		if !v.CSI {
			continue
		}
		fits, has := v.Fits[c.Policy]
		isTagged := len(s.Wants.Categories) == 0 || v.Failed[Tags] == nil
		if v.Err != nil || v.Failed[Privileges] != nil || !isTagged || c.Policy != "" && !has {
			return nil, false
		}
		for n := range v.Datastores {
			d := &v.Datastores[n]
			isFit := c.Policy == "" || slices.Contains(fits, d.Ref)
			isSeen := seen == nil || seen[d] || c.FSType == fileVolumes // a share needs no host of a node
			if d.supported() && isFit && isSeen && (c.DatastoreURL == "" || d.URL == c.DatastoreURL) {
				out = append(out, d)
			}
		}
	}
	return out, true
}

// storageDRS finds datastores for volumes in a datastore cluster that moves disks.
func storageDRS(s *Snapshot) (out []found) {
	for _, a := range s.areas() {
		for _, d := range a.shared(true) {
			ref := a.vcenter.Objects[d.Ref].Parent
			pod, known := a.vcenter.Objects[ref]
			f := found{on: a.vcenter.Name, object: d.Name}
			switch {
			case ref.Type == "StoragePod" && !known:
				f.what = "a datastore that volumes may be made on is in a datastore cluster that the account may not read"
			case pod.StorageDRS:
				f.of = "in " + a.vcenter.Path(ref)
				f.what = "a datastore that volumes may be made on is in a datastore cluster with Storage DRS"
			}
			out = append(out, f)
		}
	}
	return out
}

// hostGroups finds nodes whose VMs may move to another zone of the same cluster. Only a must-run rule keeps DRS and HA
// from moving a VM off the hosts of a group.
func hostGroups(s *Snapshot, b behind) []found {
	v := b.vcenter
	cluster := v.Objects[b.machine.Host].Parent
	if !v.CSI || !v.Objects[cluster].MovesVMs {
		return nil
	}
	bound, rule := v.Bound[b.machine.Ref]
	zoneOf := func(host Ref) []string {
		tags, _ := tagsIn(v.climb(s.Wants.Categories, v.Ancestors(host)))
		return tags
	}
	zone := zoneOf(b.machine.Host)
	for r, o := range v.Objects {
		if o.Parent != cluster || r.Type != "HostSystem" || rule && !slices.Contains(bound, r) {
			continue
		}
		if !slices.Equal(zone, zoneOf(r)) {
			return is("the node's VM may move to a host of another zone in its cluster")
		}
	}
	return nil
}

// asks returns the categories that a driver looks for in a vCenter.
func (w Wants) asks(d matrix.Driver, v *VCenter) []string {
	switch {
	case d == matrix.CPI && v.CPI && w.Zone != "" && w.Region != "":
		return []string{w.Region, w.Zone}
	case d == matrix.CSI && v.CSI:
		return w.Categories
	}
	return nil
}

func categories(s *Snapshot, v *VCenter) (out []found) {
	for _, d := range []matrix.Driver{matrix.CPI, matrix.CSI} {
		for _, c := range s.Wants.asks(d, v) {
			if err := zoneKey(c); d == matrix.CSI && err != nil {
				out = append(out, found{object: c, drivers: []matrix.Driver{d}, what: err.Error(),
					remedy: "rename it: `govc tags.category.update -name NEW {}`; then correct spec.storageProvider.topologyCategories"})
			} else if _, ok := v.Categories[c]; v.Failed[Tags] == nil && !ok {
				out = append(out, found{object: c, drivers: []matrix.Driver{d}, what: "the vCenter has no tag category of this name"})
			}
		}
	}
	if !Older(s.Wants.CSIVersion, "3.0.0") {
		out = append(out, misplaced(s.Wants.asks(matrix.CSI, v), v)...)
	}
	return out
}

// misplaced finds tags with which the storage driver makes no volume. Either no hosts are in their object, or a tag of
// another category has their name. Source: vsphere-csi-driver v3.7.3, pkg/csi/service/common/topology.go, fetchHosts
// and DiscoverTagEntities.
func misplaced(asked []string, v *VCenter) (out []found) {
	of := map[string]string{} // categories, by tag
	for _, r := range slices.SortedFunc(maps.Keys(v.Tagged), Ref.Compare) {
		for _, t := range v.Tagged[r] {
			f := found{object: t.Tag, drivers: []matrix.Driver{matrix.CSI}, action: Warn}
			switch {
			case !slices.Contains(asked, t.Name):
				continue
			case !v.HasHosts(r):
				f.of = "of " + t.Name + ", on " + cmp.Or(v.Path(r), r.Type+":"+r.Value)
				f.what = "a tag is on an object that no host is in: the storage driver makes no volume in that zone"
				f.remedy = "take it off there: `govc tags.detach -c CATEGORY {} PATH`"
			case cmp.Or(of[t.Tag], t.Name) != t.Name:
				f.what = "tags of two categories have one name: the storage driver takes one for the other"
				f.remedy = "rename one before there are volumes, which keep its name: `govc tags.update -name NEW -c CATEGORY {}`"
			}
			of[t.Tag] = t.Name
			out = append(out, f)
		}
	}
	return out
}

// HasHosts reports whether an object is of a kind that the storage driver finds hosts below.
func (v *VCenter) HasHosts(r Ref) bool {
	isForOthers := func(r Ref) bool { // a datacenter's own folder for VMs, storage or networks
		return r.Type == "Folder" && v.Objects[r].Parent.Type == "Datacenter" && v.Objects[r].Name != "host"
	}
	isPlace := r.Type == "ComputeResource" || slices.Contains(ZoneTypes(), r.Type)
	return isPlace && !slices.ContainsFunc(v.Ancestors(r), isForOthers)
}

// ZoneTypes returns the types of objects that tags of zones are on, as the API names them.
func ZoneTypes() []string {
	return []string{"ClusterComputeResource", "Datacenter", "Folder", "HostSystem"}
}

// ZoneLabel returns why a tag cannot be a zone: the drivers write it as the value of a node's label.
func ZoneLabel(tag string) error {
	if why := validation.IsValidLabelValue(tag); len(why) > 0 {
		return fmt.Errorf("the tag %q is no value of a node's label: %s", tag, why[0])
	}
	return nil
}

// zoneKey returns why the storage driver cannot use a category: it writes its name into the key of a node's label.
func zoneKey(category string) error {
	if why := validation.IsQualifiedName(csiZones + category); len(why) > 0 {
		return fmt.Errorf("its name cannot be in the key of a node's label: %s", why[0])
	}
	return nil
}

// label returns the key of the node label that a driver writes from a tag of a category.
func (w Wants) label(d matrix.Driver, category string) string {
	switch {
	case d == matrix.CSI:
		return csiZones + category
	case category == w.Zone:
		return newZones + "zone"
	}
	return newZones + "region"
}

// tagsIn returns the tags on the way up, and the categories without any.
func tagsIn(zone []Level) (tags, without []string) {
	for _, l := range zone {
		if l.Tag == "" {
			without = append(without, l.Category)
			continue
		}
		tags = append(tags, l.Tag)
	}
	return tags, without
}

// tags checks each driver's categories: the storage driver reads the host and its ancestors, the cloud provider also
// resource pool, VM and folders. A second tag of a category stops the storage driver: vsphere-csi-driver v3.1.2,
// pkg/common/cns-lib/vsphere/virtualmachine.go, GetTopologyLabels. The kubelet refuses a driver with another tag than
// the node's label: kubernetes v1.36.3, pkg/volume/csi/nodeinfomanager/nodeinfomanager.go, updateTopologyLabels.
func tags(s *Snapshot, b behind) (out []found) {
	v, host := b.vcenter, b.vcenter.Ancestors(b.machine.Host)
	if v.Failed[Tags] != nil {
		return nil
	}
	path := v.Path(b.machine.Host)
	for _, d := range []matrix.Driver{matrix.CPI, matrix.CSI} {
		chains := [][]Ref{host}
		if d == matrix.CPI {
			folders := append([]Ref{b.machine.Ref}, v.Ancestors(b.machine.Folder)...)
			chains = append(chains, v.Ancestors(b.machine.Pool), folders)
		}
		without := s.Wants.asks(d, v)
		for _, chain := range chains {
			zone := v.climb(without, chain)
			_, without = tagsIn(zone)
			for _, l := range zone {
				f := found{object: path, drivers: []matrix.Driver{d}}
				key := s.Wants.label(d, l.Category)
				switch err, label := ZoneLabel(l.Tag), b.node.Zones[key]; {
				case err != nil:
					f.what, f.remedy = err.Error(), "rename it: `govc tags.update -name NEW -c CATEGORY TAG`"
				case l.Tag != "" && label != "" && label != l.Tag:
					f.action, f.of = Warn, fmt.Sprintf("node %s: %s=%s, tag %s", b.node.Name, key, label, l.Tag)
					f.what = "the host has another tag than the node's label, which is written once"
					f.remedy = "move the VM back, or attach the former tag: `vdoctl topology tag --vcenter NAME --username ADMIN --attach CATEGORY:TAG={} --replace`. A new zone needs new nodes, since volumes keep theirs"
				case d == matrix.CPI && l.Tag != "" && label == "" && b.node.ProviderID != "" && !b.node.Uninitialized:
					f.action, f.of = Warn, fmt.Sprintf("node %s: no %s, tag %s", b.node.Name, key, l.Tag)
					f.what = "the node joined before topology was configured, and the cloud provider labels only nodes that join"
					f.remedy = "label it: `kubectl label node NAME " + newZones + "region=TAG " + newZones + "zone=TAG`"
				}
				out = append(out, f)
			}
		}
		if len(without) > 0 {
			what := "no tag of " + strings.Join(without, ", ") + " on the node's host, nor on what it is in"
			out = append(out, found{object: path, drivers: []matrix.Driver{d}, what: what})
		}
	}
	if !v.CSI || !Older(s.Wants.CSIVersion, "3.3.0") {
		return out
	}
	for _, l := range v.climb(s.Wants.Categories, host) {
		if l.twice {
			out = append(out, found{object: path, drivers: []matrix.Driver{matrix.CSI},
				what:   "the host and what it is in have several tags of " + l.Category + ": the storage driver before 3.3 refuses that",
				remedy: "take all but one off the host, its cluster, folders and datacenter: `govc tags.attached.ls -r {}`"})
		}
	}
	return out
}
