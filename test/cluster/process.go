package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

// errExited reports that a process ended before it served.
var errExited = errors.New("the process ended")

// await probes until the process of a tool serves or ends, or the timeout.
func await(ctx context.Context, name string, p *shell.Process, ready probe) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		if last = ready(ctx); last == nil {
			return nil
		}
		select {
		case <-p.Ended:
			return fmt.Errorf("%s: %w; its log ends with:\n%s", name, errExited, tail(p.Log))
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w; its log ends with:\n%s", name, last, tail(p.Log))
		case <-tick.C:
		}
	}
}

// tail returns the last 2 KiB of a file.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2<<10):])
}
