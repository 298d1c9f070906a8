// Command guest is what runs in the virtual machine of test/vm before and beside the node's own programs: its first process.
// It makes the machine a node with AMD GPUs and RDMA VFs (identity.go), starts containerd and the kubelet, starts them
// again when they end, and runs scripts for the host (agent.go). As "guest pause" it is the sandboxes' container, as
// "guest podresources" it prints what the kubelet says.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "pause":
		pause()
	case len(os.Args) > 1 && os.Args[1] == "podresources":
		err = printPodResources(os.Stdout)
	default:
		err = boot()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

// pause waits to be told to end. It reaps: with a shared process namespace it is every process's last parent.
func pause() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for pid := 1; pid > 0; {
			pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
	}
}

// boot never returns but with an error: the end of the first process is the kernel's panic, and that is the machine's end.
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
		{"VFs", createVFs},
		{"RDMA devices", createRDMA},
		{"identity", layIdentity},
		{"containerd", startContainerd},
		{"kubelet", startKubelet},
		{"images", importImages}, // while the kubelet starts
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
