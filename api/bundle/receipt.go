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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
)

// Values of apiVersion and kind in a receipt.
const (
	ReceiptAPIVersion = "vdo.vmware.com/receipt/v1"
	ReceiptKind       = "PushReceipt"
	MaxReceiptSize    = 4 << 20 // bytes
	MaxReceiptBlobs   = 20_000  // per list
)

// Receipt is the inventory of a repository after a push.
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

// NewReceipt returns the receipt of a pushed graph.
func NewReceipt(repository string, g *Graph) *Receipt {
	r := &Receipt{
		APIVersion: ReceiptAPIVersion, Kind: ReceiptKind, Repository: repository, Root: DigestOf(g.Root),
		Blobs: make([]ReceiptBlob, 0, len(g.Blobs)),
	}
	for _, b := range g.Blobs {
		r.Blobs = append(r.Blobs, ReceiptBlob{DigestOf(b), b.Size})
	}
	return r
}

// JSON returns the receipt as a file, one line per value. It refuses a receipt that ParseReceipt could not read.
func (r *Receipt) JSON() ([]byte, error) {
	if len(r.Blobs) > MaxReceiptBlobs {
		return nil, fault.Errorf(fault.Refused, "write receipt", r.Repository,
			"use the bundle itself as the base of a delta", "there are %d blobs, more than %d", len(r.Blobs), MaxReceiptBlobs)
	}
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

// ParseReceipt reads a receipt; name is for messages. It is as strict as [ParseLock].
func ParseReceipt(name string, data []byte) (*Receipt, error) {
	r := &Receipt{}
	if err := receiptFormat.Load(name, data, r, r.check); err != nil {
		return nil, err
	}
	return r, nil
}

var receiptFormat = strictyaml.Format{
	Op: "read receipt", APIVersion: ReceiptAPIVersion, Kind: ReceiptKind, Limit: MaxReceiptSize,
	Hint: "name what `vdo-bundle push --receipt` wrote, unchanged",
}

func (r *Receipt) check(c *strictyaml.Check) {
	ref, err := image.ParseReference(r.Repository)
	c.Require(err == nil && ref.Repository() == r.Repository, "repository", "%.200q is not HOST/PATH", r.Repository)
	c.Require(!r.Root.IsZero(), "root", "there is no digest")
	c.Require(len(r.Blobs) > 0, "blobs", "there is none")
	c.Require(len(r.Blobs) <= MaxReceiptBlobs, "blobs", "there are %d, more than %d", len(r.Blobs), MaxReceiptBlobs)
	for i, b := range r.Blobs {
		key := fmt.Sprintf("blobs[%d]", i)
		c.Require(!b.Digest.IsZero(), key+".digest", "there is no digest")
		c.Require(b.Size >= 0 && b.Size <= MaxBlobSize, key+".size", "%d bytes cannot be", b.Size)
		c.Require(i == 0 || r.Blobs[i-1].Digest.String() < b.Digest.String(), key, "it is not sorted, or there twice")
	}
}
