package render

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func manifestOf(name string, padding int) []byte {
	return fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  x: %s\n", name, bytes.Repeat([]byte("x"), padding))
}

// What is decoded is the caller's: rendering changes it, and the next pass must not see that.
func TestDecodedManifestsAreNotSharedWithWhoChangesThem(t *testing.T) {
	m := decoded{limit: 10_000}
	data := manifestOf("a", 10)
	for range 3 { // the first one decodes, the others recall
		objects, err := m.decode("cpi/1/a.yaml", data)
		require.NoError(t, err)
		require.Len(t, objects, 1)
		require.Equal(t, "a", objects[0].GetName())
		require.Empty(t, objects[0].GetLabels())
		objects[0].SetName("changed")
		objects[0].SetLabels(map[string]string{"changed": "too"})
		objects[0].Object["data"].(map[string]any)["x"] = "changed"
	}
	require.Len(t, m.files, 1)
}

func TestDecodedManifestsAreThoseOfTheirBytes(t *testing.T) {
	m := decoded{limit: 10_000}
	for _, name := range []string{"a", "b", "a"} {
		objects, err := m.decode("one name", manifestOf(name, 10))
		require.NoError(t, err)
		require.Equal(t, name, objects[0].GetName())
	}
	for range 2 {
		_, err := m.decode("cpi/1/bad.yaml", []byte("{"))
		require.ErrorContains(t, err, "cpi/1/bad.yaml")
	}
	require.Len(t, m.files, 2, "what cannot be decoded is not kept")
}

// Whatever bundles hold, memory stays bounded; what is in use stays.
func TestDecodedManifestsAreBounded(t *testing.T) {
	m := decoded{limit: 10_000}
	use := func(name string, padding int) {
		_, err := m.decode(name, manifestOf(name, padding))
		require.NoError(t, err)
		total := 0
		for _, f := range m.files {
			total += f.size
		}
		require.Equal(t, total, m.bytes)
		require.LessOrEqual(t, total, m.limit)
	}
	for n := range 30 {
		use("in-use", 900)
		use(fmt.Sprint("other-", n), 900)
	}
	require.Len(t, m.files, 10)
	_, known := m.recall(m.files[len(m.files)-1].sum)
	require.True(t, known)
	require.Equal(t, "in-use", m.files[len(m.files)-2].objects[0].GetName())
	before := len(m.files)
	use("large", 10_000)
	require.Len(t, m.files, before, "one that is larger than all there is room for drops nothing")
}

func TestDecodedManifestsServeSeveralAtOnce(t *testing.T) {
	m := decoded{limit: 10_000}
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() {
			for n := range 50 {
				objects, err := m.decode("x", manifestOf(fmt.Sprint("n", n%5), 2500))
				if err == nil {
					objects[0].SetName("changed")
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
}
