package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func storageChecks() []check {
	return []check{
		{id: "datastore-shared", why: "a volume is made where every node that may use it can reach it", applies: machinesForStorage, run: sharedDatastores},
		{id: "datastore-space", why: "a volume is not made where there is no room, and one that grows when it is written to stops the VM", applies: machinesForStorage, run: fullDatastores},
		{id: "storage-class", why: "a claim of such a class stays Pending", applies: func(s *Snapshot) bool { return forStorage(s) && len(s.Cluster.StorageClasses) > 0 }, run: storageClasses},
	}
}

// area is the hosts that have to see a datastore in common: those of the nodes in a vCenter or, with
// topology, all that are below the tags of one zone.
type area struct {
	vcenter *VCenter
	name    string
	hosts   []Ref
}

// areas are those hosts by vCenter and, with topology, by the tags of all categories. Before 3.0 the
// storage driver looks at the hosts of the nodes in a zone.
func (s *Snapshot) areas() []area {
	type key struct{ vcenter, tags string }
	at := map[key]int{}
	var out []area
	for _, b := range s.nodesMachines() {
		if !b.vcenter.UsedByCSI {
			continue
		}
		tags, _ := b.vcenter.tagsOf(s.Wants.Categories, b.vcenter.Ancestors(b.machine.Host))
		k := key{b.vcenter.Name, strings.Join(tags, "/")}
		i, known := at[k]
		if !known {
			i = len(out)
			at[k] = i
			out = append(out, area{vcenter: b.vcenter, name: k.tags})
			if len(tags) > 0 && !older(s.Wants.CSIVersion, 3, 0) {
				zone := b.vcenter.climb(s.Wants.Categories, b.vcenter.Ancestors(b.machine.Host))
				out[i].hosts = b.vcenter.hostsOf(zone)
			}
		}
		if !slices.Contains(out[i].hosts, b.machine.Host) {
			out[i].hosts = append(out[i].hosts, b.machine.Host)
		}
	}
	for i := range out {
		out[i].hosts = out[i].vcenter.working(out[i].hosts)
	}
	return out
}

// hostsOf are all hosts below objects with each of these tags, as the storage driver finds them:
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

// working are the hosts that are not in maintenance, whose storage may be taken away for that
// time, and all where none works.
func (v *VCenter) working(hosts []Ref) []Ref {
	out := slices.DeleteFunc(slices.Clone(hosts), func(h Ref) bool { return v.Objects[h].Maintenance })
	if len(out) == 0 {
		return hosts
	}
	return out
}

// leastFree is the part of a datastore, in hundredths, that is free where there is room.
const leastFree = 10

// fullDatastores are those among the datastores that volumes may be made on.
func fullDatastores(s *Snapshot) []found {
	var out []found
	for _, a := range s.areas() {
		for i := range a.vcenter.Datastores {
			d := &a.vcenter.Datastores[i]
			if !d.Accessible || !d.MayHold || d.Capacity <= 0 || !d.sharedBy(a.hosts) {
				continue
			}
			if free := d.Free / max(d.Capacity/100, 1); free < leastFree {
				out = append(out, found{on: a.vcenter.Name, object: d.Name, of: fmt.Sprintf("%d %% free", free), action: Warn,
					what:   fmt.Sprintf("less than %d %% of a datastore that volumes may be made on is free", leastFree),
					remedy: "extend it or move VMs away: govc datastore.info '{}'; or take it out of the storage policies that StorageClasses name"})
			}
		}
	}
	return out
}

func sharedDatastores(s *Snapshot) []found {
	var out []found
	for _, a := range s.areas() {
		where := "all hosts of the nodes"
		if a.name != "" {
			where = "all hosts in " + a.name
		}
		seen, usable := 0, 0
		for i := range a.vcenter.Datastores {
			d := &a.vcenter.Datastores[i]
			if !d.Accessible || !d.sharedBy(a.hosts) {
				continue
			}
			seen++
			if d.MayHold {
				usable++
			}
		}
		switch {
		case seen == 0:
			out = append(out, found{on: a.vcenter.Name, action: Warn, what: "no datastore is seen by " + where + ", and accessible",
				remedy: "mount one on all of them, or configure topology by zones with a datastore each"})
		case usable == 0:
			out = append(out, found{on: a.vcenter.Name, action: Warn, what: "the account lacks Datastore.FileManagement on each datastore that is seen by " + where,
				remedy: "give it a role with that privilege on the datastores for volumes: govc permissions.set -principal ACCOUNT -role NAME DATASTORE"})
		}
	}
	return out
}

func (d *Datastore) sharedBy(hosts []Ref) bool {
	for _, h := range hosts {
		if !d.Hosts[h] {
			return false
		}
	}
	return true
}

func storageClasses(s *Snapshot) []found {
	var out []found
	for _, v := range s.readable() {
		if !v.UsedByCSI {
			continue
		}
		out = append(out, v.unread(Policies, "give the account StorageProfile.View on the vCenter's root")...)
		for _, c := range s.Cluster.StorageClasses {
			if c.Policy != "" && v.Failed[Policies] == nil && !slices.Contains(v.Policies, c.Policy) {
				out = append(out, found{on: v.Name, object: c.Name, of: c.Policy, action: Warn,
					what:   "StorageClasses name a storage policy that the vCenter does not have",
					remedy: "make it: vSphere Client > Policies and Profiles > VM Storage Policies; or correct the class's parameter storagepolicyname"})
			}
			if c.DatastoreURL != "" && !v.hasDatastore(c.DatastoreURL) && len(s.readable()) == 1 {
				out = append(out, found{on: v.Name, object: c.Name, of: c.DatastoreURL, action: Warn,
					what: "StorageClasses name a datastore that the vCenter does not have", remedy: "correct the class's parameter datastoreurl: govc datastore.info shows URLs"})
			}
		}
	}
	return out
}

func (v *VCenter) hasDatastore(url string) bool {
	return slices.ContainsFunc(v.Datastores, func(d Datastore) bool { return d.URL == url })
}

func topologyChecks() []check {
	asked := func(s *Snapshot) bool { return someReadable(s) && len(s.Wants.AllCategories()) > 0 }
	return []check{
		{id: "topology-category", why: "the storage driver's controller ends at its start when a vCenter lacks one; the cloud provider leaves nodes uninitialized", applies: asked, run: categories},
		{id: "topology-tag", why: "a node without a tag of each category gets no zone, and does not come up", applies: func(s *Snapshot) bool { return asked(s) && machinesKnown(s) }, run: tags},
	}
}

// of are the categories that a vCenter has to have, sorted, each with the drivers that ask
// for it.
func (w Wants) of(v *VCenter) (names []string, drivers map[string][]matrix.Driver) {
	drivers = map[string][]matrix.Driver{}
	if v.UsedByCPI && w.Zone != "" && w.Region != "" {
		for _, c := range []string{w.Region, w.Zone} {
			drivers[c] = []matrix.Driver{matrix.CPI}
		}
	}
	if v.UsedByCSI {
		for _, c := range w.Categories {
			drivers[c] = append(drivers[c], matrix.CSI)
		}
	}
	return slices.Sorted(maps.Keys(drivers)), drivers
}

func categories(s *Snapshot) []found {
	var out []found
	for _, v := range s.readable() {
		out = append(out, v.unread(Tags, "give the account the role ReadOnly on the vCenter's root, and see that the service vsphere-tagging answers")...)
		if v.Failed[Tags] != nil {
			continue
		}
		names, drivers := s.Wants.of(v)
		for _, c := range names {
			if !v.Categories[c] {
				out = append(out, found{on: v.Name, object: c, action: BlockInstall, drivers: drivers[c], what: "the vCenter has no tag category of this name",
					remedy: "make it there too: govc tags.category.create -m=false '{}'; then tag datacenters, clusters or hosts; or correct the name in the VDOConfig"})
			}
		}
	}
	return out
}

// there are those of the categories that the vCenter has: what is not there is another
// check's finding.
func (v *VCenter) there(categories []string) []string {
	return slices.DeleteFunc(slices.Clone(categories), func(c string) bool { return !v.Categories[c] })
}

// tagsOf returns the tags of the categories that the drivers find on the way up, by the first of the
// chains that has one, and the categories without any.
func (v *VCenter) tagsOf(categories []string, chains ...[]Ref) (tags, without []string) {
	found := make([]string, len(categories))
	for _, chain := range chains {
		for i, l := range v.climb(categories, chain) {
			found[i] = cmp.Or(found[i], l.Tag)
		}
	}
	for i, tag := range found {
		if tag == "" {
			without = append(without, categories[i])
			continue
		}
		tags = append(tags, tag)
	}
	return tags, without
}

// tags looks for a tag of each category above each node.
func tags(s *Snapshot) []found {
	var out []found
	for _, b := range s.nodesMachines() {
		if b.vcenter.Failed[Tags] != nil {
			continue
		}
		out = append(out, s.taggedTwice(b)...)
		if without, drivers := s.untagged(b); len(without) > 0 {
			out = append(out, found{on: b.vcenter.Name, object: b.vcenter.Path(b.machine.Host), of: "node " + b.node.Name, action: BlockInstall, drivers: drivers,
				what:   "no tag of " + strings.Join(without, ", ") + " on the node's host, nor on what it is in",
				remedy: "tag the host, its cluster or its datacenter: govc tags.attach TAG '{}'"})
		}
	}
	return out
}

// taggedTwice finds a second tag of a category on the way up, where it stops the storage driver:
// vsphere-csi-driver v3.1.2, pkg/common/cns-lib/vsphere/virtualmachine.go, GetTopologyLabels.
func (s *Snapshot) taggedTwice(b behind) (out []found) {
	if !b.vcenter.UsedByCSI || s.Wants.CSIVersion == "" || !older(s.Wants.CSIVersion, 3, 3) {
		return nil
	}
	for _, l := range b.vcenter.climb(s.Wants.Categories, b.vcenter.Ancestors(b.machine.Host)) {
		if l.twice {
			out = append(out, found{on: b.vcenter.Name, object: b.vcenter.Path(b.machine.Host),
				of: "node " + b.node.Name, action: BlockInstall, drivers: []matrix.Driver{matrix.CSI},
				what:   "the host and what it is in have several tags of " + l.Category + ": the storage driver before 3.3 refuses that",
				remedy: "take all but one off the host, its cluster, folders and datacenter: govc tags.attached.ls -r '{}'"})
		}
	}
	return out
}

// untagged looks at the chain that each driver looks at: the storage driver at the host and
// what it is in, the cloud provider also at the resource pool, the VM and its folders.
func (s *Snapshot) untagged(b behind) (without []string, drivers []matrix.Driver) {
	v, host := b.vcenter, b.vcenter.Ancestors(b.machine.Host)
	if v.UsedByCPI && s.Wants.Zone != "" && s.Wants.Region != "" {
		folders := append([]Ref{b.machine.Ref}, v.Ancestors(b.machine.Folder)...)
		if _, cloud := v.tagsOf(v.there([]string{s.Wants.Region, s.Wants.Zone}), host, v.Ancestors(b.machine.Pool), folders); len(cloud) > 0 {
			without, drivers = cloud, append(drivers, matrix.CPI)
		}
	}
	if v.UsedByCSI {
		if _, storage := v.tagsOf(v.there(s.Wants.Categories), host); len(storage) > 0 {
			without, drivers = append(without, storage...), append(drivers, matrix.CSI)
		}
	}
	slices.Sort(without)
	return slices.Compact(without), drivers
}
