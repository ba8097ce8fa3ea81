package operator

import (
	"os"
	"runtime/debug"
)

const (
	// gcPercent has the collector run where half as much as what is used has come to it: the
	// operator does nothing for minutes and then much at once, and what that leaves would
	// stay as long.
	gcPercent = 50
	// memoryLimit is above what 5,000 nodes take. It is no bound, only where the collector
	// works harder: close above what is used it would do little else (at 72 MiB a pass over
	// 5,000 nodes takes three times as much of the processor).
	memoryLimit = 96 << 20 // bytes, without the program itself
)

// BoundMemory has the process use less memory for some more work. Who has set GOGC or
// GOMEMLIMIT in the environment has decided that himself.
func BoundMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}
