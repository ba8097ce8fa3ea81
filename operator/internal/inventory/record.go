package inventory

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

type record struct {
	APIVersion string  `json:"apiVersion"`
	Memory     Memory  `json:"memory"`
	Objects    []Entry `json:"objects"`
}

// Marshal returns the record.
func (i Inventory) Marshal() []byte {
	data, err := json.Marshal(record{APIVersion, i.memory, append([]Entry{}, i.Entries()...)})
	if err != nil {
		panic(err) // never: it is made of texts, numbers, and maps and structures of them
	}
	return append(data, '\n')
}

// Parse parses a record; name is its origin, for errors. It refuses a record of another version, since writing it
// would lose objects.
func Parse(name string, data []byte) (Inventory, error) {
	bad := func(format string, args ...any) (Inventory, error) {
		return Inventory{}, fault.Errorf(fault.Corrupt, "read inventory", name,
			"restore the ConfigMap from a backup; or delete it: installed drivers are adopted again", format, args...)
	}
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
	inv := Inventory{memory: r.Memory}.clone()
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
