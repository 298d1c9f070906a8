// SPDX-License-Identifier: Apache-2.0

// Command pause is the container of the sandboxes of test/vm: it waits to be told to end, and reaps, since
// with a shared process namespace it is every process's last parent. Every pod of the emulated machine starts
// it, so it is a small program of its own.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
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
