package jumphost

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// InForcePath is where the port of the probes answers with [InForce] of the files that are in
// force.
const InForcePath = "/in-force"

// InForce identifies where files lead: config.json as it is, and of bmc.json (nil: there is
// none) which hosts it powers, and at which addresses. Logins are no part of it, so that
// anybody may see it: 64 characters of hexadecimal.
func InForce(config []byte, bmc *BMC) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d:", len(config))
	h.Write(config)
	if bmc != nil {
		for _, name := range slices.Sorted(maps.Keys(bmc.Hosts)) {
			fmt.Fprintf(h, "%q %q\n", name, bmc.Hosts[name].Address)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
