package revision

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
)

// Histories have the history of each group. The zero value is a VDOConfig that never installed a driver.
type Histories map[Group]History

// Records returns the records of all groups, in the order of their first start.
func (h Histories) Records() []Record {
	var all []Record
	for _, g := range Groups {
		all = append(all, h[g].Records...)
	}
	slices.SortStableFunc(all, func(a, b Record) int { return a.Made.Compare(b.Made) })
	return all
}

// InForce returns the current revisions, in order of installation.
func (h Histories) InForce() []Record {
	var all []Record
	for _, g := range Groups {
		if cur, ok := h[g].InForce(); ok {
			all = append(all, cur)
		}
	}
	return all
}

// OfBundle returns the newest record of a bundle.
func (h Histories) OfBundle(bundle string) (Record, bool) {
	for _, r := range slices.Backward(h.Records()) {
		if r.Bundle == bundle {
			return r, true
		}
	}
	return Record{}, false
}

// With returns the histories with the given one of a group.
func (h Histories) With(g Group, one History) Histories {
	out := maps.Clone(h)
	if out == nil {
		out = Histories{}
	}
	if out[g] = one; len(one.Records) == 0 && one.Consent == nil {
		delete(out, g)
	}
	return out
}

// UnmarshalJSON reads histories, or the one history of all drivers that programs before v0.1 wrote. The
// latter is dropped in v0.2, with all code below.
func (h *Histories) UnmarshalJSON(data []byte) error {
	var before together
	err := json.Unmarshal(data, &before)
	if err != nil || len(before.Records) == 0 && before.Last == 0 && before.RetryRequest == "" {
		return json.Unmarshal(data, (*map[Group]History)(h))
	}
	*h = nil
	for _, g := range Groups {
		*h = h.With(g, before.of(g))
	}
	return nil
}

// together is a history of revisions of all drivers.
type together struct {
	Current      int        `json:"current"`
	Last         int        `json:"last"`
	Records      []severals `json:"records"`
	RetryRequest string     `json:"wish"`
}

type severals struct {
	Record
	Bundles map[Group]string `json:"bundles"` // by driver, if its release came from another bundle
}

// otherBundle is the suffix of a driver's key in Contents if its release came from another bundle.
const otherBundle = "/bundle"

// of returns the history of a group. Each part belongs to the first revision that had it.
func (t *together) of(g Group) History {
	out := History{Last: t.Last}
	for i := range t.Records {
		r := &t.Records[i]
		part, ok := r.Of(g)
		if !ok {
			continue
		}
		part.Bundle = t.bundleOf(r, g)
		rec := r.Record
		known := slices.IndexFunc(out.Records, func(o Record) bool { return o.Equal(part) })
		if known >= 0 && (r.Failed() || !out.Records[known].Healthy.IsZero()) {
			rec = out.Records[known]
		}
		if known >= 0 {
			rec.Number = out.Records[known].Number
		}
		if rec.Revision = part; known >= 0 && r.Number != t.Current {
			rec.Revision = out.Records[known].Revision
		}
		if out = out.With(rec); r.Number == t.Current {
			out.Current = rec.Number
		}
	}
	return out
}

// bundleOf returns the bundle that a driver of a record came from.
func (t *together) bundleOf(r *severals, driver Group) string {
	for _, o := range slices.Backward(t.Records) {
		if r.Contents[driver+otherBundle] != "" && o.Contents[driver+otherBundle] == "" &&
			o.Contents[driver] == r.Contents[driver] && o.Version(driver).Equal(r.Version(driver)) {
			return o.Bundle
		}
	}
	return cmp.Or(r.Bundles[driver], r.Bundle)
}
