// SPDX-License-Identifier: Apache-2.0

// Command guest is what runs in the virtual machine of test/vm before and beside the node's own programs: its
// first process. It makes the machine a node with GPUs and RDMA VFs (identity.go), starts containerd and the
// kubelet, starts them again when they end, and runs scripts for the host (agent.go). With an argument it is
// one of the small programs below.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	programs := map[string]func() error{
		"podresources": printPodResources, // what the kubelet says
		"rdma":         createRDMA,        // for VFs that were made again
		"runtime":      completeContainer, // what NVIDIA's container runtime does
		"stock":        serveStock,        // the stand-in for the stock plugins
	}
	program, ok := programs[os.Args[len(os.Args)-1]]
	if !ok {
		program = boot
	}
	if err := program(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

// boot never returns but with an error: the end of the first process is the kernel's panic, and that is the
// machine's end.
func boot() error {
	start := time.Now()
	if err := os.Setenv("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"root file system", enterRoot},
		{"mounts", mountAll},
		{"files", unpackFiles},
		{"modules", loadModules},
		{"CPUs", onlineCPUs},
		{"network", setUpNetwork},
		{"containerd", startContainerd},
		{"VFs", createVFs}, // while containerd imports images
		{"RDMA devices", createRDMA},
		{"identity", layIdentity},
		{"kubelet", startKubelet},
		{"images", waitForImages},
		{"registration", waitForKubelet},
	} {
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		tell("%s after %.1f s", step.name, time.Since(start).Seconds())
	}
	return serveAgent()
}

// tell writes a line that the host waits for or shows. It recognises them by their first word.
func tell(format string, args ...any) {
	fmt.Fprintf(os.Stdout, "guest: "+format+"\n", args...)
}

// told is what the host says under a name on the kernel's command line, as in tandem.vfs=4; "" where it says
// nothing.
func told(name string) string {
	line, _ := os.ReadFile("/proc/cmdline") // without it nothing was said
	for word := range strings.FieldsSeq(string(line)) {
		if value, ok := strings.CutPrefix(word, "tandem."+name+"="); ok {
			return value
		}
	}
	return ""
}
