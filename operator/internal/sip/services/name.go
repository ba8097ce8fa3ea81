package services

import (
	"crypto/sha256"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// maxName leaves room for suffixes of further objects, such as "-tls".
const maxName = 63 - 16

// Name is the name of a service of a SIPCluster: sip-CLUSTER-KIND-INDEX-HASH as far as it
// fits a DNS label. The hash keeps clusters apart whose names are cut or have dots; the
// index is the service's place among those of its kind.
func Name(cluster string, kind Kind, index int) string {
	short := map[Kind]string{LoadBalancerControlPlane: "lb-cp", LoadBalancerWorker: "lb-worker", JumpHost: "jump", Auth: "auth"}[kind]
	sum := sha256.Sum256([]byte(cluster))
	tail := fmt.Sprintf("-%s-%d-%x", short, index, sum[:4])
	return "sip-" + label(cluster, maxName-len("sip-")-len(tail)) + tail
}

// Namespace is the name of the namespace that the services of a SIPCluster run in: another one for
// each. The operator records on it whose it is.
func Namespace(of types.NamespacedName) string {
	sum := sha256.Sum256([]byte(of.String()))
	return fmt.Sprintf("sip-%s-%x", label(of.Namespace+"-"+of.Name, 63-len("sip-")-1-16), sum[:8])
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
