package inventory

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Copy is one of the ConfigMaps of a record, as it is on the cluster.
type Copy struct {
	Name    string // NAMESPACE/NAME
	Found   bool
	Version string // where it is found
	Data    map[string]string
}

// Anchor is what another resource, under another right, knows of a record: the serial of the
// one that was last written, or seen to be good, and the key of then. The zero value is of a
// record that was never sealed.
type Anchor struct {
	Serial int64
	KeyID  string
	Epoch  string // "": of a program that knew none
}

// Proof is what the copies of a record are held against.
type Proof struct {
	Key    []byte // nil: there is none now
	Owner  string // as of [Sealer]
	UID    string // likewise
	Anchor Anchor
	// Earlier is set where something besides the copies shows that a program has installed before:
	// only then is a record without a good seal that of one from before there were seals.
	Earlier bool
}

// anchored tells whether a record without a good seal cannot be the operator's.
func (p Proof) anchored() bool { return len(p.Key) > 0 && p.Anchor.KeyID == KeyID(p.Key) }

// Loaded is a record as it is believed.
type Loaded struct {
	Inventory
	// Found is set where there is a record, and Sealed where its seal is good.
	Found, Sealed bool
	// Serial is the highest that is known: of the record, or of the anchor of its key.
	Serial int64
	// Epoch is the record's, the zero value of one without a good seal or of an earlier program.
	Epoch Epoch
	// Whole is set where both copies are the same, and There are the versions of those that are
	// there by their names, whatever is believed of them.
	Whole bool
	There map[string]string
	// Later is set where a copy that is not believed bears a good seal and is not older: a later
	// program has written it, in a form that this one does not read.
	Later bool
	// Rejected are why copies are not believed beside one that is.
	Rejected []error
}

// Believe chooses among the copies of a record, the first one first, by the rules of the
// package comment. Where there is no record it answers an empty one. It fails with Corrupt
// where none can be read, and with Untrusted where none that can be is the operator's.
func Believe(copies []Copy, by Proof) (Loaded, error) {
	b, out := believer{proof: by}, Loaded{Whole: same(copies), There: map[string]string{}}
	for _, c := range copies {
		if c.Found {
			b.read(c)
			out.There[c.Name] = c.Version
		}
	}
	if by.anchored() {
		out.Serial = by.Anchor.Serial
	}
	switch best := b.best(); {
	case best != nil:
		out.Inventory, out.Found, out.Sealed, out.Serial, out.Epoch = best.inv, true, true, best.serial, best.epoch
		out.Rejected = b.rejected()
		return out, nil
	case by.anchored():
		out.Later = b.later()
		return out, b.refused()
	}
	out.Later = b.later()
	if !by.Earlier {
		return out, b.planted(&out)
	}
	for _, r := range b.all {
		if r.err == nil {
			out.Inventory, out.Found = r.inv.unsealed(), true
			return out, nil
		}
	}
	return out, fault.Join(b.errs()...)
}

// believer has the copies that are there.
type believer struct {
	proof Proof
	all   []reading
}

// reading is a copy as it was read.
type reading struct {
	name   string
	inv    Inventory
	err    error // it cannot be read
	sealed bool
	later  bool // what the seal is of cannot be read
	taken  bool // what is under TakenKey is what was sealed
	serial int64
	epoch  Epoch
}

func (b *believer) read(c Copy) {
	by := unseal(c.Data, b.proof)
	r := reading{name: c.Name, serial: by.Serial, epoch: Epoch{ID: by.Epoch, After: by.After}, taken: by.taken}
	earlier := by.Bound == "" && b.proof.anchored() && b.proof.Anchor.Epoch == ""
	if r.sealed = by.whole || (by.good && earlier); earlier {
		r.epoch = Epoch{}
	}
	if text, ok := c.Data[DataKey]; ok {
		r.inv, r.err = Parse(c.Name, []byte(text))
		if r.later = r.sealed && r.err != nil; r.err == nil {
			r.inv, r.err = r.inv.marked(c.Name, c.Data[MarksKey])
		}
		if r.err == nil && r.sealed && r.taken {
			r.inv.memory.Taken = c.Data[TakenKey]
		}
	} else {
		_, r.err = corrupt(c.Name, errNoData)
	}
	b.all = append(b.all, r)
}

// why is why the seal of a copy is not good enough, "" where it is.
func (b *believer) why(r reading) string {
	switch {
	case !r.sealed:
		return "it does not bear the operator's seal: somebody else has written it"
	case b.proof.anchored() && r.serial < b.proof.Anchor.Serial:
		return fmt.Sprintf("it is older than the status: it is number %d, and the status knows number %d", r.serial, b.proof.Anchor.Serial)
	case b.proof.anchored() && b.proof.Anchor.Epoch != "" && r.epoch.ID != b.proof.Anchor.Epoch && !b.anew(r):
		return "it is older than the status: the records were made anew since it was written"
	}
	return ""
}

// anew tells whether a copy was made where there was none, after the status was written.
func (b *believer) anew(r reading) bool {
	return b.proof.Anchor.Epoch != "" && r.epoch.After == b.proof.Anchor.Epoch
}

// newer tells whether a copy was written after another one, or with it, and has more of it left.
func (b *believer) newer(r, than reading) bool {
	if anew := b.anew(r); anew != b.anew(than) {
		return anew
	}
	if r.serial != than.serial {
		return r.serial > than.serial
	}
	return r.taken && !than.taken
}

// best is the newest copy whose seal is good enough, nil where none is.
func (b *believer) best() *reading {
	var best *reading
	for i := range b.all {
		if r := &b.all[i]; r.err == nil && b.why(*r) == "" && (best == nil || b.newer(*r, *best)) {
			best = r
		}
	}
	return best
}

// later tells whether a copy that cannot be read is the operator's own.
func (b *believer) later() bool {
	return slices.ContainsFunc(b.all, func(r reading) bool { return r.later && b.why(r) == "" })
}

// rejected are why copies are not the operator's beside one that is; a write that was cut
// short leaves one that is merely older.
func (b *believer) rejected() []error {
	var all []error
	for _, r := range b.all {
		switch {
		case r.err != nil:
			all = append(all, r.err)
		case !r.sealed:
			all = append(all, &fault.Error{Reason: fault.Untrusted, Op: "believe", Subject: "ConfigMap " + r.name, Err: errors.New(b.why(r))})
		}
	}
	return all
}

// planted has copies that somebody else put there count as none, where nothing was installed
// before that they could be of. One that cannot be read stays until a person has seen to it.
func (b *believer) planted(out *Loaded) error {
	if err := fault.Join(b.errs()...); err != nil {
		return err
	}
	for _, r := range b.all {
		out.Rejected = append(out.Rejected, &fault.Error{Reason: fault.Untrusted, Op: "believe", Subject: "ConfigMap " + r.name, Err: errors.New(b.why(r) + ", and nothing was installed before")})
	}
	out.Whole = len(b.all) == 0
	return nil
}

// refused is why none of the copies is believed. One without objects says nothing: it is a
// record that is lost, and so is none at all.
func (b *believer) refused() error {
	var errs []error
	for _, r := range b.all {
		switch {
		case r.err != nil:
			errs = append(errs, r.err)
		case r.inv.Len() > 0 || r.sealed:
			errs = append(errs, &fault.Error{
				Reason: fault.Untrusted, Op: "read inventory", Subject: "ConfigMap " + r.name, Err: errors.New(b.why(r)),
				Hint: "nothing is changed by it: put back the one that was there; or, where a backup was restored on purpose, delete both vdo-inventory ConfigMaps of the VDOConfig, and what is installed is taken over again",
			})
		}
	}
	return fault.Join(errs...)
}

func (b *believer) errs() []error {
	var all []error
	for _, r := range b.all {
		all = append(all, r.err)
	}
	return all
}

// same tells whether all copies are there and alike, or none is.
func same(copies []Copy) bool {
	for _, c := range copies[min(1, len(copies)):] {
		for _, key := range []string{DataKey, SealKey, MarksKey, TakenKey} {
			if c.Found != copies[0].Found || c.Data[key] != copies[0].Data[key] {
				return false
			}
		}
	}
	return true
}

// unsealed marks all entries.
func (i Inventory) unsealed() Inventory {
	out := i.clone()
	for k, e := range out.entries {
		e.Unsealed = true
		out.entries[k] = e
	}
	return out
}
