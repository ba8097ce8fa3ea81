// Command driver stands in for each program of the drivers, in images under their real names. The manifests call it
// like the real ones, and it fails like them. Package site does the drivers' work in the cluster.
//
//	livenessprobe              answers the kubelet's probe
//	csi-node-driver-registrar  also runs as the kubelet's probe
//	driver                     in a controller, it needs a readable configuration;
//	                           on a node, it ends with the message in the file [lastWords] there
//	cloud-provider-vsphere     it needs a readable configuration
//	all                        run until they are told to end
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// lastWords is a file by which a test ends the node plugin on its node.
const lastWords = "/var/lib/kubelet/last-words"

func main() {
	if slices.Contains(os.Args, "--mode=kubelet-registration-probe") {
		return
	}
	if err := run(filepath.Base(os.Args[0])); err != nil {
		fmt.Fprintf(os.Stderr, "F%s %7d main.go:42] %v\n", time.Now().Format("0102 15:04:05.000000"), os.Getpid(), err)
		os.Exit(1)
	}
}

func run(name string) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, os.Interrupt)
	switch name {
	case "livenessprobe":
		if err := answer(":9808"); err != nil {
			return err
		}
	case "driver", "syncer", "cloud-provider-vsphere":
		if err := configured(); err != nil {
			return err
		}
	}
	for tick := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case <-ended:
			return nil
		case <-tick.C:
			if text, err := os.ReadFile(lastWords); err == nil && name == "driver" {
				return fmt.Errorf("%s", strings.TrimSpace(string(text)))
			}
		}
	}
}

func configured() error {
	file := os.Getenv("VSPHERE_CSI_CONFIG")
	for _, arg := range os.Args {
		if path, ok := strings.CutPrefix(arg, "--cloud-config="); ok {
			file = path
		}
	}
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("%s is empty", file)
	}
	return err
}

// answer answers a probe. It does not use net/http, which would make each image four times as large.
func answer(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go respond(c)
		}
	}()
	return nil
}

func respond(c net.Conn) {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	for lines := bufio.NewScanner(c); lines.Scan() && lines.Text() != ""; { //nolint:revive // to the end of the request
	}
	_, _ = fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
}
