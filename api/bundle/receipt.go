package bundle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// What a receipt says in apiVersion and kind.
const (
	ReceiptAPIVersion = "vdo.vmware.com/receipt/v1"
	ReceiptKind       = "PushReceipt"
	MaxReceiptSize    = 16 << 20 // bytes
)

// Receipt says what a repository holds after a push.
type Receipt struct {
	APIVersion string        `json:"apiVersion"` // vdo.vmware.com/receipt/v1
	Kind       string        `json:"kind"`       // PushReceipt
	Repository string        `json:"repository"` // HOST/PATH, normalised, without tag and digest
	Root       image.Digest  `json:"root"`
	Blobs      []ReceiptBlob `json:"blobs"` // configs and layers, sorted by digest, each once
}

// ReceiptBlob is one blob of a receipt.
type ReceiptBlob struct {
	Digest image.Digest `json:"digest"`
	Size   int64        `json:"size"` // bytes
}

// NewReceipt makes the receipt of a graph that was pushed.
func NewReceipt(repository string, g *Graph) *Receipt {
	r := &Receipt{
		APIVersion: ReceiptAPIVersion, Kind: ReceiptKind, Repository: repository, Root: digestOf(g.Root),
		Blobs: make([]ReceiptBlob, 0, len(g.Blobs)),
	}
	for _, b := range g.Blobs {
		r.Blobs = append(r.Blobs, ReceiptBlob{digestOf(b), b.Size})
	}
	return r
}

// JSON is the receipt as a file, a line for each value.
func (r *Receipt) JSON() ([]byte, error) {
	data, err := encodeJSON(r)
	var out bytes.Buffer
	if err = errors.Join(err, json.Indent(&out, data, "", "  ")); err != nil {
		return nil, fmt.Errorf("write receipt: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// Has reports whether the receipt names a blob.
func (r *Receipt) Has(d image.Digest) bool {
	_, ok := slices.BinarySearchFunc(r.Blobs, d.String(), func(b ReceiptBlob, want string) int {
		return cmp.Compare(b.Digest.String(), want)
	})
	return ok
}

// ParseReceipt reads a receipt; name is for messages. White space is free, all
// else is as [Receipt.JSON] writes it: no other key, none twice, none missing.
func ParseReceipt(name string, data []byte) (*Receipt, error) {
	r, err := parseReceipt(data)
	if err != nil {
		return nil, fault.Errorf(fault.InvalidInput, "read receipt", name,
			"name what `vdo-bundle push --receipt` wrote, unchanged", "%w", err)
	}
	return r, nil
}

func parseReceipt(data []byte) (*Receipt, error) {
	if len(data) > MaxReceiptSize {
		return nil, fmt.Errorf("it has more than %d bytes", MaxReceiptSize)
	}
	r := &Receipt{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("it is not a receipt: %w", err)
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	var got bytes.Buffer
	want, err := encodeJSON(r)
	if err = errors.Join(err, json.Compact(&got, data)); err == nil && !bytes.Equal(got.Bytes(), want) {
		err = errors.New("it is not written as a receipt is: other keys, keys twice, or in another order")
	}
	return r, err
}

func (r *Receipt) check() error {
	ref, err := image.ParseReference(r.Repository)
	switch {
	case r.APIVersion != ReceiptAPIVersion || r.Kind != ReceiptKind:
		return fmt.Errorf("it is %.100q %.100q, not %s %s", r.APIVersion, r.Kind, ReceiptAPIVersion, ReceiptKind)
	case err != nil || ref.Repository() != r.Repository:
		return fmt.Errorf("the repository %.200q is not HOST/PATH", r.Repository)
	case r.Root.IsZero():
		return errors.New("it names no root")
	case len(r.Blobs) > MaxBlobs:
		return fmt.Errorf("it names more than %d blobs", MaxBlobs)
	case r.Blobs == nil:
		return errors.New("it names no blobs")
	}
	for i, b := range r.Blobs {
		switch {
		case b.Digest.IsZero():
			return fmt.Errorf("blob %d has no digest", i)
		case b.Size < 0 || b.Size > MaxBlobSize:
			return fmt.Errorf("the size %d of %s cannot be", b.Size, b.Digest)
		case i > 0 && r.Blobs[i-1].Digest.String() >= b.Digest.String():
			return fmt.Errorf("the blobs are not sorted, or one is there twice: %s", b.Digest)
		}
	}
	return nil
}
