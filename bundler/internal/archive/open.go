package archive

import (
	"context"
	"errors"
	"io"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// A tarFile is an archive in one file or in parts that is open for reading.
type tarFile struct{ *storage }

// OpenFile opens an archive and reads its headers and index.json. The archive may
// be in parts: path is then the parts file, or the archive's name where only the
// parts file of that name is there.
func OpenFile(path string) (*Archive, error) {
	v, err := openStorage(path)
	if err != nil {
		return nil, err
	}
	x, err := scanStorage(v)
	if err != nil {
		if v.list != nil { // parts of it may be the reason
			err = fault.Join(err, damaged(context.Background(), v))
		}
		return nil, errors.Join(err, v.Close())
	}
	return &Archive{x, tarFile{v}}, nil
}

// scanStorage reads the headers of an archive, and its index.json.
func scanStorage(v *storage) (*index, error) {
	size, err := v.size()
	if err != nil {
		return nil, err
	}
	x, err := scan(v.path, v, size)
	if err == nil {
		x.tar.v = v
	}
	return x, err
}

func scan(path string, r io.ReaderAt, size int64) (*index, error) {
	t, err := scanTar(path, r, size)
	if err != nil {
		return nil, err
	}
	data, err := readIndex(path, t.small)
	if err != nil {
		return nil, err
	}
	x, err := parseIndex(path, data, t)
	if err != nil {
		return nil, err
	}
	x.tar = t
	return x, nil
}
