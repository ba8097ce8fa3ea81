// Package webhookcert makes, keeps and renews the certificate of the storage
// driver's validating webhook.
package webhookcert

// Certificate is a serving certificate and what its clients trust.
type Certificate struct {
	CA   []byte // PEM; what caBundle holds: the issuer, and before it the last one while that is in use
	Cert []byte // PEM of the leaf
	Key  []byte // PEM of the leaf's key, PKCS#8
}

// Data is the content of the Secret that the webhook mounts.
func (c *Certificate) Data() map[string][]byte {
	return map[string][]byte{"ca.crt": c.CA, "tls.crt": c.Cert, "tls.key": c.Key}
}
