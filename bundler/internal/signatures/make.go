package signatures

import (
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

// Of is what was signed as the media take it.
func Of(subject image.Digest, signed trust.Signed) bundle.Attachment {
	a := bundle.Attachment{
		Subject: subject, Tag: signed.Tag,
		Node: bundle.Node{Descriptor: signed.Descriptor, Data: signed.Manifest},
	}
	data := map[string][]byte{}
	for _, b := range signed.Blobs {
		data[b.Descriptor.Digest.String()] = b.Data
	}
	for _, d := range a.Node.Children() {
		d.Annotations = nil
		d.Data = data[d.Digest.String()]
		a.Blobs = append(a.Blobs, d)
	}
	return a
}

// withData gives the blobs of an attachment the bytes that another one has.
func withData(a, from bundle.Attachment) bundle.Attachment {
	for i, b := range a.Blobs {
		for _, o := range from.Blobs {
			if b.Data == nil && b.Digest == o.Digest {
				a.Blobs[i].Data = o.Data
			}
		}
	}
	return a
}
