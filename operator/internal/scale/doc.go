// Package scale measures the time, requests and memory that the operator costs on clusters of 10, 1,000 and 5,000
// nodes. The benchmark fails above 120 MiB, and if a joining node costs a second of processor time. Without changes,
// or with heartbeats only, it fails on excess writes, lists or requests, as a test with 10 nodes does.
//
//	go test -run '^$' -bench . -benchtime 1x -timeout 60m ./operator/internal/scale
//	VDO_SCALE_NODES=5000 go test …                              one size
//
// The API server, the mirror with a bundle of vdo-bundle, the vCenter's API with a VM for each node and the operator
// are real. The operator is the shipped program, to measure its memory and processor time. A proxy before the API
// server counts its requests. Nodes, kubelets and the workload controllers are simulated (play_test.go): they write
// the same as real ones, in objects of real size.
//
// A benchmark of a size goes through these phases, and reports each:
//
//	wait    the first installation: all nodes wait for a slow cloud provider
//	install the rest of it, until all is healthy
//	start   the operator starts on a complete installation, until it has observed all
//	idle    no change for some intervals; a reconcile of idle
//	beat    likewise, while kubelets write their nodes' statuses at the real rate
//	join    a node joins: it registers, is initialised, its pod starts, its plug-in registers
//	change  a field of the VDOConfig that is in the storage driver's configuration
//
// The metrics are NAME-cpu-ms (processor time of the operator), NAME-wall-ms, NAME-passes, NAME-peak-MiB (maximum
// resident memory), and resident-MiB at rest. NAME-pass-ms is the mean time of a VDOConfig's reconcile.
package scale
