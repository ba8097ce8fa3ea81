// Package model holds no code but tests: programs of random events against the
// operator's controllers, over a real API server, a real mirror and a vCenter.
//
// A program is a list of events ("pull secret: deleted", "node: w-1 lies", "pass:
// drivers"). The world executes them; after every pass, and whenever the site is left
// in peace, the invariants of invariants_test.go have to hold. What fails is shrunk to
// the few events that still make it fail, and printed with its seed.
//
// Scenarios (scenario_test.go) are programs by hand of the same world, under the same invariants: what happens, one
// after another, and what must hold then. One of them has real DaemonSets, on nodes that KWOK answers for.
//
//	make soak SOAK=2h                                              for hours, with make soak of vdo-bundle
//	VDO_TEST_WRITES=3 go test ./operator/internal/model            operators that are killed after so many writes each
//	VDO_TEST_SEED=42 go test ./operator/internal/model             again what seed 42 draws
//	VDO_TEST_PROGRAM=FILE go test ./operator/internal/model        a program as it was printed
//
// What is real: the API server with the operator's own rights (deploy/rbac.yaml), the
// mirror with bundles that vdo-bundle made, the vCenter's API and its accounts. What is
// played: kubelets and the workload controllers (kubelet_test.go), by rules that need
// no waiting, so that a program is the same at every run; and time, which passes by a
// clock of the program's.
package model
