package services

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// maxName leaves room for suffixes of further objects, such as "-tls".
const maxName = 63 - 16

// Name is the name of a service of a SIPCluster: sip-CLUSTER-KIND-INDEX-HASH as far as it
// fits a DNS label. The hash keeps clusters apart whose names are cut or have dots; the
// index is the service's place among those of its kind.
func Name(cluster string, kind Kind, index int) string {
	short := map[Kind]string{LoadBalancerControlPlane: "lb-cp", LoadBalancerWorker: "lb-worker", JumpHost: "jump", Auth: "auth"}[kind]
	tail := fmt.Sprintf("-%s-%d-%s", short, index, hash(cluster))
	return "sip-" + label(cluster, maxName-len("sip-")-len(tail)) + tail
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// label cuts a DNS subdomain to what a label may hold.
func label(s string, most int) string {
	out := []byte(s[:min(len(s), most)])
	for i, c := range out {
		if c == '.' {
			out[i] = '-'
		}
	}
	return string(out)
}
