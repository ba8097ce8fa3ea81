// Package kms signs with private keys in a key management service.
//
//	key, err := kms.Open(ctx, "hashivault://release")
//
// HashiCorp Vault and OpenBao are built in, with cosign's URI and settings (VAULT_ADDR,
// VAULT_TOKEN). Vault's client adds 1.4 MB to a program of 30 MB: `make build` with and without it.
// For any other scheme NAME:// the package runs sigstore's plug-in program sigstore-kms-NAME on
// PATH. The libraries of AWS, Azure and Google Cloud would add 11 MB to the program and 7 MiB to
// the memory of every command. Users of these can sign with cosign, whose signatures are valid too.
package kms

import (
	"context"
	"crypto"
	"errors"
	"io"
	"net/http"
	"strings"

	vault "github.com/hashicorp/vault/api"
	"github.com/sigstore/sigstore/pkg/signature/kms"
	_ "github.com/sigstore/sigstore/pkg/signature/kms/hashivault" // hashivault://

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// IsURI reports whether a key's name is that of a key in a service.
func IsURI(name string) bool {
	scheme, _, ok := strings.Cut(name, "://")
	return ok && scheme != "" && !strings.ContainsAny(scheme, "/.")
}

// Open returns a key. It asks the service for the public key; the private key stays there.
func Open(ctx context.Context, uri string) (crypto.Signer, error) {
	service, err := kms.Get(ctx, uri, crypto.SHA256)
	if err != nil {
		return nil, fault.Errorf(fault.InvalidInput, "open key", uri,
			"write hashivault://KEY and set VAULT_ADDR and VAULT_TOKEN; for NAME:// install sigstore-kms-NAME, or sign with cosign",
			"%w", err)
	}
	var why error
	signer, _, err := service.CryptoSigner(ctx, func(err error) { why = err })
	if err == nil && signer.Public() == nil {
		err = errors.New("the service did not give the public key")
	}
	if err == nil {
		return key{signer, uri}, nil
	}
	return nil, refused("open key", uri, errors.Join(err, why))
}

// key is a key in a service, which can refuse each signature: its login may have expired since Open.
type key struct {
	crypto.Signer
	uri string
}

func (k key) Sign(random io.Reader, digest []byte, o crypto.SignerOpts) ([]byte, error) {
	signature, err := k.Signer.Sign(random, digest, o)
	if err != nil {
		return nil, refused("sign with", k.uri, err)
	}
	return signature, nil
}

func refused(op, uri string, err error) error {
	reason := fault.Unreachable
	if answer, ok := errors.AsType[*vault.ResponseError](err); ok && answer.StatusCode == http.StatusForbidden {
		reason = fault.Unauthorized
	}
	return fault.Errorf(reason, op, uri,
		"check the service's address and login in the environment, and that the login may read the key and sign with it",
		"%w", err)
}
