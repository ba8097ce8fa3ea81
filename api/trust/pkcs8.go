package trust

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/sha1" //nolint:gosec // what older files derive their key with; nothing is hashed for trust
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"hash"
)

// Private keys in PKCS #8 that are encrypted as RFC 8018 says: PBES2 with PBKDF2 and
// AES in CBC mode, which is what `openssl pkcs8 -topk8` and `openssl genpkey -aes256`
// write. All of it is within FIPS 140.

const maxIterations = 10_000_000 // of PBKDF2: a few seconds

var errPBES2 = errors.New("it is not encrypted with PBES2, PBKDF2 and AES: write it again with `openssl pkcs8 -topk8 -v2 aes-256-cbc`")

type encryptedKey struct {
	Scheme struct {
		Algorithm  asn1.ObjectIdentifier
		Parameters struct {
			Derivation struct {
				Algorithm  asn1.ObjectIdentifier
				Parameters asn1.RawValue
			}
			Encryption struct {
				Algorithm asn1.ObjectIdentifier
				IV        []byte
			}
		}
	}
	Data []byte
}

type pbkdf2Parameters struct {
	Salt       []byte
	Iterations int
	KeyLength  int                      `asn1:"optional"`
	PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
}

var (
	oidPBES2  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}

	prfs = map[string]func() hash.Hash{
		"":                    sha1.New, // the default of RFC 8018
		"1.2.840.113549.2.7":  sha1.New,
		"1.2.840.113549.2.9":  sha256.New,
		"1.2.840.113549.2.10": sha512.New384,
		"1.2.840.113549.2.11": sha512.New,
	}
	aesCBC = map[string]int{ // key length in bytes
		"2.16.840.1.101.3.4.1.2":  16,
		"2.16.840.1.101.3.4.1.22": 24,
		"2.16.840.1.101.3.4.1.42": 32,
	}
)

// parsePBES2 reads an encrypted key, and returns what decrypts it. That the password is
// wrong shows in the padding, or in that what comes out is no key.
func parsePBES2(der []byte) (open func(password []byte) ([]byte, error), err error) {
	var k encryptedKey
	if rest, err := asn1.Unmarshal(der, &k); err != nil || len(rest) > 0 {
		return nil, errPBES2
	}
	p := k.Scheme.Parameters
	var kdf pbkdf2Parameters
	if rest, err := asn1.Unmarshal(p.Derivation.Parameters.FullBytes, &kdf); err != nil || len(rest) > 0 {
		return nil, errPBES2
	}
	prf, prfOK := prfs[kdf.PRF.Algorithm.String()]
	length := aesCBC[p.Encryption.Algorithm.String()]
	switch {
	case !k.Scheme.Algorithm.Equal(oidPBES2), !p.Derivation.Algorithm.Equal(oidPBKDF2), !prfOK, length == 0,
		kdf.KeyLength != 0 && kdf.KeyLength != length, len(p.Encryption.IV) != aes.BlockSize,
		len(k.Data) == 0 || len(k.Data)%aes.BlockSize != 0:
		return nil, errPBES2
	case kdf.Iterations < 1 || kdf.Iterations > maxIterations:
		return nil, fmt.Errorf("its password is hashed %d times, which is not between 1 and %d", kdf.Iterations, maxIterations)
	}
	return func(password []byte) ([]byte, error) {
		key, err := pbkdf2.Key(prf, string(password), kdf.Salt, kdf.Iterations, length)
		if err != nil {
			return nil, fmt.Errorf("derive the key of the key: %w", err)
		}
		return decryptCBC(key, p.Encryption.IV, k.Data)
	}, nil
}

func decryptCBC(key, iv, data []byte) ([]byte, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	out := make([]byte, len(data))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(out, data)
	pad := int(out[len(out)-1])
	if pad < 1 || pad > aes.BlockSize {
		return nil, errPassword
	}
	out = out[:len(out)-pad]
	var der asn1.RawValue
	if rest, err := asn1.Unmarshal(out, &der); err != nil || len(rest) > 0 {
		return nil, errPassword
	}
	return out, nil
}
