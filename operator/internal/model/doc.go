// Package model holds only tests: programs of random events against the operator's controllers, over a real API
// server, a real mirror and a vCenter.
//
// A program is a list of events, such as {"event":"pull secret","arg":"deleted"}. The world executes them.
// After every reconcile, and at every quiet moment, the invariants of invariants_test.go must hold. A failing program
// is shrunk to the few events that still fail, and printed with its seed.
//
// Scenarios (scenario_test.go) are handwritten programs of the same world, under the same invariants: events in
// order, and their expected results.
//
//	make soak SOAK=2h                                              for hours, with make soak of vdo-bundle
//	VDO_TEST_SEED=42 go test ./operator/internal/model             repeat the programs of seed 42
//	VDO_TEST_PROGRAM=FILE go test ./operator/internal/model        a program as printed
//	VDO_TEST_TIER=all VDO_TEST_WRITES=3 go test ./operator/internal/model
//	                                                               operators that are killed after so many writes each
//
// The API server with the operator's own permissions (deploy/rbac.yaml), the mirror with bundles of vdo-bundle, the
// vCenter's API and its accounts are real. Kubelets and the workload controllers are simulated (kubelet_test.go), by
// rules without waiting, so that a program is the same at every run. Time is the program's own clock.
package model
