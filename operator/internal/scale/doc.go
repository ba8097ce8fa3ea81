// Package scale measures what the operator costs in time, requests and memory on clusters of
// 10, 1,000 and 5,000 nodes. The benchmark fails above 120 MiB, and where a node that joins takes
// a second of processor. Where nothing happens, or only heartbeats, it fails on what is written,
// listed or asked too often, as a test with 10 nodes does.
//
//	go test -run '^$' -bench . -benchtime 1x -timeout 60m ./operator/internal/scale
//	VDO_SCALE_NODES=5000 go test …                              one size
//
// What is real: the API server, the mirror with a bundle that vdo-bundle made, the
// vCenter's API with a VM for each node, and the operator, which is a process of its own, so
// that its memory and its processor time are its own. Its requests are counted at its transport. What is
// played: nodes, kubelets and the workload controllers, which write what real ones write
// (play_test.go), in objects of the size that real ones have.
//
// A benchmark of a size goes through what follows, and reports for each:
//
//	wait    the first installation: all nodes wait for a cloud provider that is slow
//	install the rest of it, until all is healthy
//	start   the operator is started where all is installed, until all was looked at
//	idle    nothing happens for some intervals; a pass of idle
//	beat    likewise, while kubelets write their nodes' statuses as often as real ones
//	join    a node joins: it registers, is initialised, its pod starts, its plug-in registers
//	change  a field of the VDOConfig that is in the storage driver's configuration
//
// The metrics are NAME-cpu-ms (processor time of the operator), NAME-pass-ms (mean time of
// a VDOConfig's pass), NAME-passes, NAME-peak-MiB (what was resident at most), and resident-MiB
// at rest.
package scale
