// Package tier sorts tests by their cost.
//
// Plain `go test` and `make test` run the first tier. VDO_TEST_TIER opens later tiers, as a
// list separated by commas:
//
//	all       long tests: kill loops, large data, real nodes, random programs
//	peers     tests of our programs together and with others: cosign, crane, regctl, Dex
//	upstream  tests about upstream's own manifests, from the directory VDO_UPSTREAM
//	cgo       tests of code that needs a C compiler, such as PKCS#11
//
// A test belongs to the first tier unless it calls [Later].
package tier

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Tier is a set of tests that run together.
type Tier string

// The later tiers.
const (
	All      Tier = "all"
	Peers    Tier = "peers"
	Upstream Tier = "upstream"
	CGO      Tier = "cgo"
)

// Variable is the environment variable that opens later tiers.
const Variable = "VDO_TEST_TIER"

// ControlPlanes is the environment variable that names a file. Each control plane that starts
// appends a byte to it, so that the test runner can count them.
const ControlPlanes = "VDO_TEST_CONTROL_PLANES"

// Skipped starts the message of a test that waits for a later tier. The test runner reads it.
const Skipped = "later tier: "

// Open reports whether tests of a later tier run now.
func Open(t Tier) bool {
	return !testing.Short() && slices.Contains(strings.Split(os.Getenv(Variable), ","), string(t))
}

// Later skips a test unless its tier runs now.
func Later(t testing.TB, tier Tier) {
	t.Helper()
	if !Open(tier) {
		t.Skip(Skipped + string(tier))
	}
}

// Pick returns the first value in the first tier and the second one in [All]: the number of kills, programs or bytes
// of a test.
func Pick[T any](first, all T) T {
	if Open(All) {
		return all
	}
	return first
}
