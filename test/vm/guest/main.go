// SPDX-License-Identifier: Apache-2.0

// Command guest runs in the virtual machine of test/vm besides the node's own programs: it is the first
// process. It makes the machine a node with GPUs and RDMA VFs (identity.go), starts containerd and the
// kubelet, restarts them when they end, and runs scripts for the host. With an argument it is one
// of the small programs below.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	programs := map[string]func() error{
		"podresources": printPodResources, // PodResources as JSON
		"rdma":         createRDMA,        // for recreated VFs
		"runtime":      completeContainer, // NVIDIA's container runtime
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

// boot returns only with an error: the end of the first process is a kernel panic, which ends the machine.
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

// tell writes a line that the host waits for or shows, recognized by its first word.
func tell(format string, args ...any) {
	fmt.Fprintf(os.Stdout, "guest: "+format+"\n", args...)
}

// told returns the host's value of a name on the kernel's command line, as in tandem.vfs=4, or "".
func told(name string) string {
	line, _ := os.ReadFile("/proc/cmdline") // an error means no values
	for word := range strings.FieldsSeq(string(line)) {
		if value, ok := strings.CutPrefix(word, "tandem."+name+"="); ok {
			return value
		}
	}
	return ""
}

// serveAgent runs the host's scripts, one per request, and answers with their output; the exit status is in
// the trailer.
func serveAgent() error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		script, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Trailer", "Exit-Code")
		cmd := exec.CommandContext(r.Context(), "sh", "-c", string(script))
		cmd.Stdout, cmd.Stderr = w, w
		err = cmd.Run()
		code := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			fmt.Fprintln(w, err)
			code = 127
		}
		w.Header().Set("Exit-Code", strconv.Itoa(code))
	})
	mux.HandleFunc("POST /reboot", func(http.ResponseWriter, *http.Request) {
		syscall.Sync()
		tell("reboot: %v", syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART))
	})
	listener, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	tell("ready")
	return http.Serve(listener, mux)
}
