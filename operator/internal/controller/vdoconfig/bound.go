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

// textLimits of all else are tried in turn: with the last of them a status whose lists are
// bounded is below maxStatus whatever its texts are.
var textLimits = []int{1 << 10, 512, 256, 128}

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
	for text := range why {
		*text = condition.Cut(*text, maxWhy)
	}
	whole := map[*string]bool{&st.Bundle: true} // what is read again
	for i := range st.Revisions {
		whole[&st.Revisions[i].Bundle], whole[&st.Revisions[i].Releases] = true, true
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
