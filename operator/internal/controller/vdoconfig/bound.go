package vdoconfig

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
)

// maxStatus is what a status may take, as JSON: every write of it is kept by etcd, and sent
// to all who watch.
const maxStatus = 96 << 10

// maxWhy is what a condition or a driver may say where there is more to say than that: why
// comes before lists of what.
const maxWhy = 2 << 10

// textLimits of all else are tried in turn. Where the last of them is not enough, lists of
// objects become shorter, and at last conditions.
var textLimits = []int{1 << 10, 512, 256, 128, 64, 32}

// bound cuts the texts of a status, until it is small enough.
func bound(st *v1alpha1.VDOConfigStatus) {
	if small(st) {
		return
	}
	why := map[*string]bool{}
	for i := range st.Conditions {
		why[&st.Conditions[i].Message] = true
	}
	for i := range st.Drivers {
		why[&st.Drivers[i].Message] = true
	}
	cutWhy := func(limit int) {
		for text := range why {
			*text = condition.Cut(*text, limit)
		}
	}
	cutWhy(maxWhy)
	whole := map[*string]bool{&st.Bundle: true, &st.Kubernetes: true, &st.HandledReconcileAt: true} // what is read again
	for i := range st.Drift {
		whole[&st.Drift[i].Kind], whole[&st.Drift[i].Namespace], whole[&st.Drift[i].Name] = true, true, true
	}
	for i := range st.Revisions {
		whole[&st.Revisions[i].Bundle], whole[&st.Revisions[i].Releases] = true, true
	}
	if st.Preflight = st.Preflight.DeepCopy(); st.Preflight != nil { // the checks' own stays as it is
		whole[&st.Preflight.Question], whole[&st.Preflight.HandledReconcileAt] = true, true
		for i := range st.Preflight.Results {
			whole[&st.Preflight.Results[i].VCenter] = true
		}
	}
	if st.Canary != nil {
		for i := range st.Canary.Others {
			whole[&st.Canary.Others[i].Name] = true // two of a beginning were one, and the list refused
		}
	}
	for _, limit := range textLimits {
		if small(st) {
			return
		}
		eachText(reflect.ValueOf(st).Elem(), func(text *string) {
			if !why[text] && !whole[text] {
				*text = condition.Cut(*text, limit)
			}
		})
	}
	for !small(st) && shorten(st) {
	}
	for _, limit := range textLimits { // of letters that take six bytes in JSON, too
		if small(st) {
			return
		}
		cutWhy(limit)
	}
}

// shorten leaves out half of what a status lists of objects, the gravest or first stay, and
// tells whether there was any.
func shorten(st *v1alpha1.VDOConfigStatus) bool {
	left := 0
	half := func(n int) int {
		left += n - n/2
		return n / 2
	}
	if p := st.Plan; p != nil {
		keep := half(len(p.Steps))
		p.Omitted += len(p.Steps) - keep
		p.Steps = p.Steps[:keep]
	}
	if c := st.Preflight; c != nil {
		for i := range c.Results { // the results are read again: they keep back what they did
			r := &c.Results[i]
			r.Objects = r.Objects[:half(len(r.Objects))]
		}
	}
	st.Nodes = st.Nodes[:half(len(st.Nodes))]
	return left > 0
}

func small(st *v1alpha1.VDOConfigStatus) bool {
	data, err := json.Marshal(st)
	return err != nil || len(data) <= maxStatus
}

// eachText calls do with every text in a value.
func eachText(v reflect.Value, do func(*string)) {
	switch v.Kind() {
	case reflect.String:
		if text, ok := v.Addr().Interface().(*string); ok {
			do(text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				eachText(v.Field(i), do)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachText(v.Index(i), do)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			eachText(v.Elem(), do)
		}
	}
}

func reasons(all []string) []string {
	return cut(slices.Clone(all[:min(len(all), maxReasons)]))
}
