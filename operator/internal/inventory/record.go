package inventory

import (
	"bytes"
	"encoding/json"
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
	if memory := mustJSON(i.memory); string(memory) != "{}" {
		fmt.Fprintf(&out, "\"memory\":%s,\n", memory)
	}
	out.WriteString("\"objects\":[")
	for n, e := range i.Entries() {
		if n > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
		out.Write(mustJSON(e))
	}
	out.WriteString("]}\n")
	return out.Bytes()
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

func corrupt(name string, why error) (Inventory, error) {
	return Inventory{}, &fault.Error{
		Reason: fault.Corrupt, Op: "read inventory", Subject: name, Err: why,
		Hint: "restore the ConfigMap from a backup; or delete it: what is installed is taken over again",
	}
}

// Parse reads a record; name says where it is from, for errors. One of another version is not
// written over, or objects would be forgotten.
func Parse(name string, data []byte) (Inventory, error) {
	bad := func(format string, args ...any) (Inventory, error) { return corrupt(name, fmt.Errorf(format, args...)) }
	dec := json.NewDecoder(bytes.NewReader(data))
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
