// SPDX-License-Identifier: Apache-2.0

// Command pause is the container of test/vm's sandboxes: it waits for a signal to end, and reaps processes,
// because with a shared process namespace it is their last parent. Every pod of the emulated machine starts
// it, so it is a small separate program.
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
