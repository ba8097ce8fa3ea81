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
	// memoryLimit is above what 5,000 nodes take: 46 MiB are used at most, when all of them
	// register at once, and a third as much again by the heap and by stacks. It is no bound, only
	// where the collector works harder, and gives back at once what it has freed, which stayed for
	// minutes. With the program's own file, of 47 MiB, it is under 128.
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
