package cli

import (
	"fmt"
	"sync"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// trace tells requests as lines, as --debug asks for; nil where it does not. An
// [remote.Exchange] has nothing secret in it.
func (a *app) trace() func(remote.Exchange) {
	if !a.debug {
		return nil
	}
	var mu sync.Mutex
	return func(x remote.Exchange) {
		outcome := fmt.Sprint(x.Status)
		if x.Err != "" {
			outcome = x.Err
		}
		mu.Lock()
		defer mu.Unlock()
		a.say("debug: %s %s: %s (%s)", x.Method, x.Target, outcome, x.Took.Round(time.Millisecond))
	}
}
