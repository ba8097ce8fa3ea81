// Command standin is what the demo's images run where something runs them: it
// says what it stands in for and waits to be stopped.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Println("stand-in for", strings.Join(os.Args, " "))
	<-ctx.Done()
}
