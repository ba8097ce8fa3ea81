package cli

import (
	"context"
	"os"
	"sync/atomic"
	"time"
)

// RunAt runs the program at a time, and returns its exit code.
func RunAt(now time.Time) int {
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, args: os.Args[1:], getenv: os.LookupEnv,
		now: func() time.Time { return now }, grace: &atomic.Int64{},
	}
	return a.run(context.Background())
}
