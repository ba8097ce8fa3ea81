package remote

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUploadedReadsRanges(t *testing.T) {
	for header, want := range map[string]int64{
		"0-99": 100, "bytes=0-99": 100, "0-0": 0, "": -1, "1-99": -1, "0-": -1, "0--5": -1, "0-x": -1, "99": -1,
	} {
		got, ok := uploaded(header)
		if !ok {
			got = -1
		}
		require.Equal(t, want, got, header)
	}
}

func TestStartsAt(t *testing.T) {
	require.True(t, startsAt("bytes 5-9/10", 5, 10))
	require.True(t, startsAt("bytes 5-9/*", 5, 10))
	for _, h := range []string{"", "bytes", "bytes 5-9", "bytes 4-9/10", "bytes 5-8/10", "bytes 5-9/11", "items 5-9/10", "bytes */10", "bytes 05-9/10"} {
		require.False(t, startsAt(h, 5, 10), h)
	}
}
