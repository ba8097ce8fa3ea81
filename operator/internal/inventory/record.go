package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

type record struct {
	APIVersion string                   `json:"apiVersion"`
	Complete   map[matrix.Driver]string `json:"complete,omitempty"`
	Memory     Memory                   `json:"memory,omitzero"`
	Objects    []Entry                  `json:"objects"`
}

// Marshal returns the record, one object a line.
func (i Inventory) Marshal() []byte {
	var out bytes.Buffer
	head := record{APIVersion: APIVersion, Complete: i.complete}
	fmt.Fprintf(&out, "{\"apiVersion\":%s,\n\"complete\":%s,\n", mustJSON(head.APIVersion), mustJSON(orEmpty(head.Complete)))
	remembered := i.memory
	remembered.Taken = "" // see TakenKey
	if memory := mustJSON(remembered); string(memory) != "{}" {
		fmt.Fprintf(&out, "\"memory\":%s,\n", memory)
	}
	out.WriteString("\"objects\":[")
	for n, e := range i.Entries() {
		if n > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
		e.Unsealed = false // see MarksKey
		out.Write(mustJSON(e))
	}
	out.WriteString("]}\n")
	return out.Bytes()
}

// marks are the keys of the entries that are marked, as they are kept under [MarksKey]; "" where
// none is.
func (i Inventory) marks() string {
	var all []Key
	for _, e := range i.Entries() {
		if e.Unsealed {
			all = append(all, e.Key)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return string(mustJSON(all))
}

// marked marks what a text under [MarksKey] names.
func (i Inventory) marked(name, text string) (Inventory, error) {
	var all []Key
	if text == "" {
		return i, nil
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return corrupt(name, fmt.Errorf("key %s: %w", MarksKey, err))
	}
	out := i.clone()
	for _, k := range all {
		if e, ok := out.entries[k]; ok {
			e.Unsealed = true
			out.entries[k] = e
		}
	}
	return out, nil
}

func orEmpty(m map[matrix.Driver]string) map[matrix.Driver]string {
	if m == nil {
		return map[matrix.Driver]string{}
	}
	return m
}

// mustJSON cannot fail: the values are strings, numbers, booleans, and maps and
// structures of them.
func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// errNoData is of a ConfigMap that is no record's.
var errNoData = errors.New("no key " + DataKey)

func corrupt(name string, why error) (Inventory, error) {
	return Inventory{}, &fault.Error{
		Reason: fault.Corrupt, Op: "read inventory", Subject: name, Err: why,
		Hint: "restore the ConfigMap from a backup; or delete it: installed objects carry the label app.kubernetes.io/managed-by=vdo-operator and are taken over again",
	}
}

// Parse reads a record; name says where it is from, for errors. It is strict: a
// record that is not understood in full must not be written over, or objects would
// be forgotten.
func Parse(name string, data []byte) (Inventory, error) {
	bad := func(format string, args ...any) (Inventory, error) { return corrupt(name, fmt.Errorf(format, args...)) }
	if len(data) > maxSize {
		return bad("larger than %d bytes", maxSize)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var r record
	if err := dec.Decode(&r); err != nil {
		return bad("no inventory: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF { //nolint:errorlint // io.EOF is returned bare
		return bad("something follows the record")
	}
	if r.APIVersion != APIVersion {
		return bad("apiVersion is %q, this program reads %q", r.APIVersion, APIVersion)
	}
	if len(r.Objects) > maxObjects {
		return bad("more than %d objects", maxObjects)
	}
	inv := Inventory{entries: make(map[Key]Entry, len(r.Objects)), complete: orEmpty(r.Complete), memory: r.Memory}
	for n, e := range r.Objects {
		if e.Kind == "" || e.Name == "" || e.Version == "" || e.Driver == "" {
			return bad("object %d lacks kind, name, version or driver", n)
		}
		if _, twice := inv.entries[e.Key]; twice {
			return bad("%s is there twice", e.Key)
		}
		inv.entries[e.Key] = e
	}
	return inv, nil
}
