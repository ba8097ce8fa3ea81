package archive

import (
	"context"
	"errors"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// tarFile is an archive in one file or in parts, open for reading.
type tarFile struct{ *storage }

// OpenFile opens an archive and reads its headers and index.json. For an archive in parts, path is the parts file, or
// the archive's name if only its parts file exists.
func OpenFile(path string) (*Archive, error) {
	v, err := openStorage(path)
	if err != nil {
		return nil, err
	}
	x, err := scanStorage(v)
	if err != nil {
		if v.list != nil { // damaged parts may be the reason
			err = fault.Join(err, damaged(context.Background(), v))
		}
		return nil, errors.Join(err, v.Close())
	}
	return &Archive{x, tarFile{v}}, nil
}

func scanStorage(v *storage) (*index, error) {
	size, err := v.size()
	if err != nil {
		return nil, err
	}
	t, err := scanTar(v.path, v, size)
	if err != nil {
		return nil, err
	}
	t.v = v
	data, err := readIndex(v.path, t.small)
	if err != nil {
		return nil, err
	}
	x, err := parseIndex(v.path, data, t)
	if err == nil {
		x.tar = t
	}
	return x, err
}
