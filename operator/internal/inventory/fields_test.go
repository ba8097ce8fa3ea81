package inventory_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// full is a value of a type with something in each of its fields.
func full(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // of the others there are none
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		full(v.Elem())
	case reflect.Struct:
		if at, is := v.Addr().Interface().(*time.Time); is {
			*at = time.Unix(1, 0)
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				full(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		full(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		full(key)
		full(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("key")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8: // of JSON
		v.SetUint('1')
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	}
}

// fieldsOf are the fields of JSON, with those that they are in.
func fieldsOf(v any, in string, all map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			fieldsOf(item, in+"[]", all)
		}
	case map[string]any:
		for name, value := range v {
			at := strings.TrimPrefix(in+"."+name, ".")
			all[at] = true
			fieldsOf(value, at, all)
		}
	}
}

// The operator before reads the record, which is strict: testdata has the fields that it knows. What
// is added goes under a key of its own.
func TestTheOperatorBeforeKnowsEachFieldOfTheRecord(t *testing.T) {
	var e inventory.Entry
	var m inventory.Memory
	full(reflect.ValueOf(&e).Elem())
	full(reflect.ValueOf(&m).Elem())
	var record any
	require.NoError(t, json.Unmarshal(inventory.Of(e).WithComplete(matrix.CSI, "3.5.1").WithMemory(m).Marshal(), &record))
	has := map[string]bool{}
	fieldsOf(record, "", has)
	text, err := os.ReadFile("testdata/fields.txt")
	require.NoError(t, err)
	require.Subset(t, strings.Fields(string(text)), slices.Sorted(maps.Keys(has)))
	require.Greater(t, len(has), 100)
	require.Contains(t, has, "memory.revisions.records[].gate.mark")
}
