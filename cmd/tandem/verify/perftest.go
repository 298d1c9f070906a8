// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Programs of perftest. A latency of RDMA reads includes both directions. Of the latency tests only reads and
// sends support a GPU's memory.
const (
	bandwidthProgram = "ib_write_bw"
	latencyProgram   = "ib_read_lat"
)

// Sizes of the tests.
const (
	messageBytes      = 1 << 20 // of the bandwidth test
	messagesInFlight  = 16      // a slow port completes some within a second, and 16 MiB fill a fast one
	latencyBytes      = 8
	latencyIterations = 1000
)

// Memory is the memory of a pair's traffic.
type Memory string

// Memories.
const (
	Auto   Memory = "auto" // the GPU's with dmabuf, the GPU's, the host's: the first that perftest supports
	Host   Memory = "host"
	Peer   Memory = "gpu"    // through the kernel module of the GPU's vendor: nvidia_peermem, or amdgpu
	DMABuf Memory = "dmabuf" // the GPU's, through dmabuf
)

// program is a program of perftest.
type program struct {
	name, path string
	options    map[string]bool // "--size"
}

var option = regexp.MustCompile(`--[A-Za-z0-9_-]+`)

// findProgram finds a program of perftest in PATH and reads its options from its help.
func findProgram(ctx context.Context, name string, environment []string) (program, error) {
	file, err := exec.LookPath(name)
	if err != nil {
		return program{}, fmt.Errorf("find %s: %w: install perftest (Debian, Fedora: package perftest) in the "+
			"container's image", name, err)
	}
	p := program{name: name, path: file}
	output, err := p.run(ctx, environment, "--help") // perftest 4.5 ends its help with an error
	p.options = readOptions(output)
	if !p.options["--ib-dev"] || !p.options["--size"] {
		return program{}, errors.Join(fmt.Errorf("read the options of %s: no program of perftest", file), err)
	}
	return p, nil
}

func readOptions(help string) map[string]bool {
	options := map[string]bool{}
	for _, word := range option.FindAllString(help, -1) {
		options[word] = true
	}
	return options
}

// memory returns the memory for an end: as wanted, if the program supports it.
func (p program) memory(wanted Memory, gpu *runtimeGPU) (Memory, error) {
	if gpu == nil || wanted == Host {
		if gpu == nil && wanted != Host && wanted != Auto {
			return "", fmt.Errorf("memory %s: the VF has no GPU", wanted)
		}
		return Host, nil
	}
	selection, dmabuf := gpu.options()
	switch {
	case !p.options[selection] && wanted == Auto:
		return Host, nil
	case !p.options[selection]:
		return "", fmt.Errorf("memory %s: %s has no option %s", wanted, p.name, selection)
	case wanted == Peer:
		return Peer, nil
	case p.options[dmabuf]:
		return DMABuf, nil
	case wanted == DMABuf:
		return "", fmt.Errorf("memory %s: %s has no option %s", wanted, p.name, dmabuf)
	}
	return Peer, nil
}

// options returns the options that select the GPU, and dmabuf.
func (g *runtimeGPU) options() (selection, dmabuf string) {
	if g.NVIDIA {
		return "--use_cuda_bus_id", "--use_cuda_dmabuf"
	}
	return "--use_rocm", "--use_rocm_dmabuf"
}

// arguments returns the options of a memory; dmabuf follows the selection of the GPU.
func (m Memory) arguments(gpu *runtimeGPU) []string {
	if m == Host || gpu == nil {
		return nil
	}
	selection, dmabuf := gpu.options()
	value := strconv.Itoa(gpu.ROCm)
	if gpu.NVIDIA {
		value = gpu.Address.String()
	}
	arguments := []string{selection + "=" + value}
	if m == DMABuf {
		arguments = append(arguments, dmabuf)
	}
	return arguments
}

// common returns the arguments that all tests have.
func (e End) common(tcp int, m Memory) []string {
	arguments := []string{"-F", "-d", e.RDMA, "-i", port, "-p", strconv.Itoa(tcp)}
	if e.GID >= 0 {
		arguments = append(arguments, "-x", strconv.Itoa(e.GID))
	}
	return append(arguments, m.arguments(e.GPU)...)
}

// bandwidth returns the arguments of ib_write_bw.
func (p *TrafficPlan) bandwidth(e End, tcp int, m Memory) []string {
	amount := []string{"-D", strconv.Itoa(p.Seconds)}
	if p.GiB > 0 {
		amount = []string{"-n", strconv.Itoa(p.GiB * (1 << 30 / messageBytes))}
	}
	return append(append(e.common(tcp, m), amount...), "-s", strconv.Itoa(messageBytes),
		"-t", strconv.Itoa(messagesInFlight), "--report_gbits")
}

// latency returns the arguments of ib_read_lat.
func (p *TrafficPlan) latency(e End, tcp int, m Memory) []string {
	return append(e.common(tcp, m), "-n", strconv.Itoa(latencyIterations), "-s", strconv.Itoa(latencyBytes))
}

// hidesGPUs are variables that renumber or hide GPUs. The index of a GPU counts all GPUs of the container.
var hidesGPUs = []string{"CUDA_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES=",
	"GPU_DEVICE_ORDINAL="}

func withoutHidden(environment []string) []string {
	return slices.DeleteFunc(slices.Clone(environment), func(variable string) bool {
		return slices.ContainsFunc(hidesGPUs, func(prefix string) bool {
			return strings.HasPrefix(variable, prefix)
		})
	})
}

// Limits of a program.
const (
	outputLimit = 64 << 10
	grace       = 2 * time.Second // between SIGTERM and SIGKILL
)

// head keeps the first outputLimit bytes.
type head struct{ strings.Builder }

// Write implements io.Writer, and never fails.
func (h *head) Write(text []byte) (int, error) {
	room := max(outputLimit-h.Len(), 0)
	h.Builder.Write(text[:min(room, len(text))])
	return len(text), nil
}

// run runs the program and returns its output, standard error last. The end of ctx ends the program.
func (p program) run(ctx context.Context, environment []string, arguments ...string) (string, error) {
	var stdout, stderr head
	cmd := exec.CommandContext(ctx, p.path, arguments...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environment, &stdout, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	err := cmd.Run()
	output := stdout.String() + "\n" + stderr.String()
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("run %s: %w", p.name, context.Cause(ctx))
	case err != nil:
		err = fmt.Errorf("run %s %s: %w: %s", p.name, strings.Join(arguments, " "), err, reason(output))
	}
	return output, err
}
