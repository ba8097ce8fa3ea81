package token_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/token"
)

func TestURIsNameTokenAndKey(t *testing.T) {
	u, err := token.ParseURI("pkcs11:token=Release%20One;object=release;id=%01%ff;type=private;model=x?module-path=/lib/hsm.so&pin-source=file:///run/pin")
	require.NoError(t, err)
	require.Equal(t, "Release One", u.Token)
	require.Equal(t, "release", u.Object)
	require.Equal(t, []byte{1, 255}, u.ID)
	require.Equal(t, "/lib/hsm.so", u.Module)
	require.Equal(t, "/run/pin", u.PINFile)
	require.Equal(t, "pkcs11:token=Release%20One;object=release;id=%01%ff;type=private;model=x", u.String())
	u, err = token.ParseURI("pkcs11:token=a+b;object=c&d=e")
	require.NoError(t, err)
	require.Equal(t, "a+b", u.Token)
	require.Equal(t, "c&d=e", u.Object)
	u, err = token.ParseURI("pkcs11:slot-id=3;id=%07?pin-source=/run/pin")
	require.NoError(t, err)
	require.Equal(t, 3, *u.Slot)
	require.Equal(t, "/run/pin", u.PINFile)
}

func TestBadURIsAreExplained(t *testing.T) {
	for uri, want := range map[string]string{
		"pkcs12:token=a;object=b":                        "does not begin with pkcs11:",
		"pkcs11:":                                        "does not choose a token",
		"pkcs11:object=b":                                "does not choose a token",
		"pkcs11:token=a;serial=b;object=c":               "exactly one of token, serial and slot-id",
		"pkcs11:token=a":                                 "it names no key",
		"pkcs11:token=a;token=b;object=c":                "there twice",
		"pkcs11:token=a;object":                          "it names no key",
		"pkcs11:token=%zz;object=c":                      "is not NAME=VALUE",
		"pkcs11:token=a;object=c;colour=d":               "not known",
		"pkcs11:token=a;object=c;type=cert":              "is not private",
		"pkcs11:slot-id=x;object=c":                      "slot-id is not a number",
		"pkcs11:token=a;object=c?module-path=hsm.so":     "not an absolute path",
		"pkcs11:token=a;object=c?pin-source=|cat /etc/x": "not a file: URI",
		"pkcs11:token=a;object=c?pin-value=12345":        "everyone on this machine can see it",
		"pkcs11:token=a;object=c;pin-value=12345":        "everyone on this machine can see it",
		"pkcs11:token=a;object=c?colour=d":               "not known",
	} {
		t.Run(uri, func(t *testing.T) {
			_, err := token.ParseURI(uri)
			require.ErrorContains(t, err, want)
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
			require.NotEmpty(t, fault.HintOf(err))
			require.NotContains(t, err.Error(), "12345")
		})
	}
}

func FuzzParseURI(f *testing.F) {
	f.Add("pkcs11:token=a;object=b;id=%01?module-path=/x&pin-source=file:/y")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := token.ParseURI(s)
		if err != nil {
			require.NotEmpty(t, fault.HintOf(err))
			return
		}
		again, err := token.ParseURI(u.String())
		require.NoError(t, err)
		require.Equal(t, u.String(), again.String())
	})
}
