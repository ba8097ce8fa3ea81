package accounts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPasswordsHaveAllKindsOfCharacters(t *testing.T) {
	p := string(newPassword())
	require.Regexp(t, `^9-[A-Z2-7]{9}[a-z2-7]{9}$`, p)
	require.NotEqual(t, p, string(newPassword()))
}
