package trust

import (
	"io"
	"sync/atomic"

	"github.com/sigstore/sigstore/pkg/signature"
)

// Counted is the key, with the number of signatures that were held against it.
func Counted(k Key, n *atomic.Int64) Key {
	verifiers := make([]signature.Verifier, len(k.verifiers))
	for i, v := range k.verifiers {
		verifiers[i] = counted{v, n}
	}
	k.verifiers = verifiers
	return k
}

type counted struct {
	signature.Verifier
	n *atomic.Int64
}

func (c counted) VerifySignature(raw, message io.Reader, o ...signature.VerifyOption) error {
	c.n.Add(1)
	return c.Verifier.VerifySignature(raw, message, o...)
}
