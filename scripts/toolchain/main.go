// Command toolchain builds the programs that tests and the demo need, ahead of
// time, and prints their paths. Without arguments it builds all that `make test`
// uses; with arguments, the tools named: NAME or NAME@VERSION.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	tools := os.Args[1:]
	if len(tools) == 0 {
		tools = toolchain.ForTests()
	}
	for _, arg := range tools {
		name, version, _ := strings.Cut(arg, "@")
		path, err := toolchain.Ensure(ctx, os.Stderr, toolchain.Tool{Name: name, Version: version})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			stop()
			os.Exit(1) //nolint:gocritic // stop was called
		}
		fmt.Println(path)
	}
}
