// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/test/programs"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// mostMemory is the resident memory that a small recording may cost, in bytes.
const mostMemory = 128 << 20

// TestCostOfRecordings: the memory and the time of a command are in proportion to the recording, which can be
// a file of others.
func TestCostOfRecordings(t *testing.T) {
	programs.Build(t, "tandem") // before the memory of this process is looked at
	for name, c := range map[string]struct {
		command, text string
	}{
		"control: lists":            {"plan --gpus=1", withList(t, "0-1", "0-1,", 1)},
		"a long list of NUMA nodes": {"topo", withList(t, "0-1", "0-1023,", 8<<10)},
		"a long list of CPUs":       {"plan --gpus=1", withList(t, "0-55,112-167", "0-65535,", 128)},
		"control: DMA functions":    {"topo", withDMAFunctions(t, 50)},
		"many DMA functions":        {"topo", withDMAFunctions(t, 2000)},
	} {
		t.Run(name, func(t *testing.T) {
			if share := inherited(t); share > mostMemory {
				t.Skipf("a program's memory includes %d MiB of this process, as with the race detector", share>>20)
			}
			cpu, memory, problem := runLimited(t, append(strings.Fields(c.command), "--machine",
				write(t, "machine.txt", c.text))...)
			if problem != "" {
				t.Error(problem)
			}
			if cpu > time.Second || memory > mostMemory {
				t.Errorf("%.1f s of CPU time and %d MiB for a recording of %d KiB: %s", cpu.Seconds(), memory>>20,
					len(c.text)>>10, problem)
			}
		})
	}
}

// inherited returns the resident memory that the kernel counts for a program that does nothing: until it
// starts, it is this process.
func inherited(t *testing.T) int64 {
	t.Helper()
	command := exec.Command("sh", "-c", ":")
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	return command.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
}

// runLimited runs tandem with at most two seconds of CPU time and 2 GiB of addresses, and returns its CPU
// time and resident memory.
func runLimited(t *testing.T, args ...string) (cpu time.Duration, memory int64, problem string) {
	t.Helper()
	tandem := filepath.Join(programs.Build(t, "tandem"), "tandem")
	command := exec.Command("sh", append([]string{"-c", `ulimit -t 2 && ulimit -v 2097152 && exec "$@"`, "sh",
		tandem}, args...)...)
	output, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err != nil {
		problem = fmt.Sprintf("%v: %.300s", err, output)
	}
	usage := command.ProcessState.SysUsage().(*syscall.Rusage)
	return command.ProcessState.UserTime() + command.ProcessState.SystemTime(), usage.Maxrss << 10, problem
}

// withList returns a recorded machine in which a list of numbers is another: a part, many times.
func withList(t *testing.T, list, part string, times int) string {
	t.Helper()
	text, err := os.ReadFile(recorded("oci-mi300x-derived"))
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(text), " = "+list+"\n")
	if !found {
		t.Fatalf("no list %s", list)
	}
	return before + " = " + strings.Repeat(part, times) + "0\n" + after
}

// withDMAFunctions returns a machine with DMA functions below a chain of bridges that is nearly as deep as a
// recording permits.
func withDMAFunctions(t *testing.T, count int) string {
	t.Helper()
	b, place := recording.NewBuilder(), "devices/pci0000:00"
	for bus := range 50 {
		place += fmt.Sprintf("/0020:%02x:00.0", bus)
	}
	for i := range count {
		address := fmt.Sprintf("0001:%02x:%02x.%d", i>>8, i>>3&0x1f, i&7)
		b.File(place+"/"+address+"/class", "0x080100\n")
		b.File(place+"/"+address+"/vendor", "0x15b3\n")
		b.File(place+"/"+address+"/device", "0x2100\n")
		b.Link("bus/pci/devices/"+address, "../../../"+place+"/"+address)
	}
	return textOf(t, b)
}
