// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// hostile is a device name in a foreign recording.
const hostile = "mlx5_0\x1b]0;owned\x07\x1b[2J\u009b\u202e\nGPU9<script>"

// hostileMachine is a recording with a GPU and a NIC on one switch.
func hostileMachine(t *testing.T) string {
	t.Helper()
	b := recording.NewBuilder()
	const root = "devices/pci0000:00/0000:00:01.0/0000:01:00.0"
	for address, files := range map[string]map[string]string{
		root + "/0000:02:00.0/0000:03:00.0": {"class": "0x030200\n", "vendor": "0x10de\n", "device": "0x2330\n"},
		root + "/0000:02:01.0/0000:04:00.0": {
			"class": "0x020000\n", "vendor": "0x15b3\n", "infiniband/mlx5_1/ports/1/state": "4: " + hostile,
			"infiniband/mlx5_1/ports/1/rate": hostile, "net/" + hostile + "/type": "1\n",
			"infiniband/" + hostile + "/ports/1/rate": hostile,
		},
	} {
		for name, content := range files {
			b.File(address+"/"+name, content)
		}
		b.Link("bus/pci/devices/"+filepath.Base(address), "../../../"+address)
	}
	return write(t, "m.txt", textOf(t, b))
}

// TestTextOfOthers: device names and states of a recording cannot control a terminal or break lines, and
// documents stay well-formed. A device with such a name is not shown.
func TestTextOfOthers(t *testing.T) {
	t.Parallel()
	file := hostileMachine(t)
	for _, format := range []string{
		"-o table", "-v", "-o json", "-o svg", "-o nccl", "-o resourceslices",
	} {
		out := succeed(t, append([]string{"topo", "--machine", file}, strings.Fields(format)...)...)
		if strings.ContainsAny(out, "\x1b\x07\u009b\u202e") {
			t.Errorf("%s has control characters: %q", format, out)
		}
		switch format {
		case "-o json":
			var document struct{ NICs []struct{ RDMA string } }
			if err := json.Unmarshal([]byte(out), &document); err != nil || document.NICs[0].RDMA != "mlx5_1" {
				t.Errorf("%s: %v, %+v", format, err, document)
			}
		case "-o svg", "-o nccl":
			wellFormed(t, format, out)
		case "-o resourceslices":
			if strings.Contains(out, "<script>\n") {
				t.Errorf("%s has the script of a name", format)
			}
		default:
			state := strings.Contains(out, `mlx5_0\u001b]0;owned\u0007\u001b[2J\u009b\u202e\u000aGPU9<script>`)
			if !strings.Contains(out, "mlx5_1") || state != (format == "-v") {
				t.Errorf("%s does not show the device, or shows the other one:\n%s", format, out)
			}
		}
	}
	for _, args := range [][]string{
		{"topo", "--machine", hostile}, {"\x1b[2J"}, {"topo", "--\x1b[2J"},
		{"plan", "--machine", file, "--gpus=x\x1b"},
	} {
		if _, stdout, stderr := run(args...); strings.Contains(stdout+stderr, "\x1b") || stderr == "" {
			t.Errorf("%q prints %q", args, stdout+stderr)
		}
	}
}

func wellFormed(t *testing.T, format, text string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Errorf("%s is not well-formed: %v", format, err)
			return
		}
	}
}

// TestRecord records a laid-out machine: the same file comes out, but for the comments.
func TestRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ready(t, os.CopyFS(dir, machines.Sys(t, "oci-mi300x-derived", 2)))
	code, stdout, stderr := run("record", "--sysfs-root", dir)
	if code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	const summary = "recorded 1572 entries: 112 PCI functions, 2 NUMA nodes, 24 netdevs, 24 RDMA devices, " +
		"8 render nodes, 10 KFD nodes\n"
	if diff := cmp.Diff(summary, stderr); diff != "" {
		t.Errorf("standard error (-want +got):\n%s", diff)
	}
	want, err := os.ReadFile(withVFs(t, "oci-mi300x-derived", 2))
	ready(t, err)
	_, entries, _ := strings.Cut(string(want), "\n[")
	if diff := cmp.Diff("# tandem machine v1\n["+entries, stdout); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// mostMemory is the resident memory that a small recording may cost, in bytes.
const mostMemory = 128 << 20

// TestCostOfRecordings: the memory and the time of a command are in proportion to the recording, which can be
// a file of others.
func TestCostOfRecordings(t *testing.T) {
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
	ready(t, command.Run())
	return command.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
}

// runLimited runs tandem with at most two seconds of CPU time and 2 GiB of addresses, and returns its CPU
// time and resident memory.
func runLimited(t *testing.T, args ...string) (cpu time.Duration, memory int64, problem string) {
	t.Helper()
	command := limited(t, "ulimit -t 2 && ulimit -v 2097152", args...)
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
	ready(t, err)
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
