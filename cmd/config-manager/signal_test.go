// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSignalThatFailed: after a failed signal the next look signals the plugin, once, even in the next
// config-manager.
func TestSignalThatFailed(t *testing.T) {
	told := make(chan os.Signal, 8)
	signal.Notify(told, syscall.SIGHUP)
	defer signal.Stop(told)
	source, target := configMap(t, "default", "mixed"), filepath.Join(t.TempDir(), "config.yaml")
	check(t, os.Symlink(filepath.Join(source, "mixed"), target)) // by the init container
	set := options{
		source: source, target: target, nodeLabel: "label",
		send: true, signal: int(syscall.SIGHUP), process: "tandem-gpu",
	}
	without, with := processes(t, nil), processes(t, map[int]string{os.Getpid(): "tandem-gpu\x00"})
	for _, step := range []struct {
		proc, label string
		failure     string
		signals     int
	}{
		{with, "mixed", "", 0},
		{without, "default", "there is none in this pod", 0},
		{without, "default", "there is none in this pod", 0},
		{with, "default", "", 1},
		{with, "default", "", 0},
		{without, "mixed", "there is none in this pod", 0},
		{without, "default", "there is none in this pod", 0}, // the plugin may have read the other one meanwhile
		{with, "default", "", 1},
	} {
		err := (&keeper{options: set, proc: step.proc, log: quiet()}).updateTarget(step.label) // a new keeper
		if (err != nil) != (step.failure != "") || err != nil && !strings.Contains(err.Error(), step.failure) {
			t.Errorf("%+v: %v", step, err)
		}
		for range step.signals {
			await(t, told)
		}
		if len(told) > 0 {
			t.Fatalf("%+v: one signal too many", step)
		}
	}
}
