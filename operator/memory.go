package operator

import (
	"os"
	"runtime/debug"
)

const (
	// gcPercent keeps the heap small between the bursts of work of a mostly idle operator.
	gcPercent = 50
	// memoryLimit exceeds the 46 MiB that 5,000 nodes take when all register at once, and a third
	// more for the heap and stacks. Above it the collector works harder and returns memory at once.
	memoryLimit = 71 << 20 // bytes, without the program itself
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
