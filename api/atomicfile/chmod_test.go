package atomicfile

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

// fat is a file of a medium without owners.
type fat struct{}

func (fat) Chmod(fs.FileMode) error { return fs.ErrPermission }

func TestAMediumWithoutOwnersTakesFiles(t *testing.T) {
	require.NoError(t, chmod(fat{}, 0o644))
	require.Error(t, chmod(fat{}, 0o600), "others could read it")
}
