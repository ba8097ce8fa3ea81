package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestTheStreamIsTheSameForTheSameBlobsAndReadsBack(t *testing.T) {
	blobs := map[digest.Digest][]byte{}
	for _, s := range []string{"a", "", "ccc", "\n\n"} {
		blobs[digest.FromString(s)] = []byte(s)
	}
	root := ocispec.Descriptor{MediaType: "x", Digest: digest.FromString("a"), Size: 1}
	packed := pack(root, []ocispec.Descriptor{root}, blobs)
	for range 5 {
		require.Equal(t, packed, pack(root, []ocispec.Descriptor{root}, blobs))
	}
	h, err := unpack(packed)
	require.NoError(t, err)
	require.Equal(t, root, h.head.Root)
	require.Len(t, h.head.Signatures, 1)
	require.Len(t, h.blobs, 4)
	for d, data := range blobs {
		require.Equal(t, string(data), string(h.blobs[d]))
	}
}

func FuzzUnpack(f *testing.F) {
	root := ocispec.Descriptor{Digest: digest.FromString("a"), Size: 1}
	f.Add(pack(root, nil, map[digest.Digest][]byte{root.Digest: []byte("a")}))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := unpack(data)
		if err != nil {
			return
		}
		for _, b := range h.head.Blobs {
			require.Contains(t, h.blobs, b.Digest)
		}
	})
}
