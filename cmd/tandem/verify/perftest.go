// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// memory is the memory of a pair's traffic.
type memory string

// Memories.
const (
	autoMemory memory = "auto" // the GPU's with dmabuf, the GPU's, the host's: the first that perftest supports
	hostMemory memory = "host"
	peerMemory memory = "gpu"    // through the kernel module of the GPU's vendor: nvidia_peermem, or amdgpu
	dmaBuf     memory = "dmabuf" // the GPU's, through dmabuf
)

// KnownSpeed returns the speed without a memory that is no word of this program.
func (s Speed) KnownSpeed() Speed {
	if !s.InGPU() && s.Memory != hostMemory {
		s.Memory = ""
	}
	return s
}

// InGPU reports whether the memory is a GPU's.
func (s Speed) InGPU() bool { return s.Memory == peerMemory || s.Memory == dmaBuf }

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
	output, err := p.runProgram(ctx, environment, "--help") // perftest 4.5 ends its help with an error
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

// memoryFor returns the memory for an end: as wanted, if the program supports it.
func (p program) memoryFor(wanted memory, gpu *GPU) (memory, error) {
	if wanted == hostMemory || gpu == nil && wanted == autoMemory {
		return hostMemory, nil
	}
	if gpu == nil {
		return "", fmt.Errorf("memory %s: the VF has no GPU", wanted)
	}
	selection, dmabuf := gpu.optionNames()
	switch {
	case !p.options[selection] && wanted == autoMemory:
		return hostMemory, nil
	case !p.options[selection]:
		return "", fmt.Errorf("memory %s: %s has no option %s", wanted, p.name, selection)
	case wanted == peerMemory:
		return peerMemory, nil
	case p.options[dmabuf]:
		return dmaBuf, nil
	case wanted == dmaBuf:
		return "", fmt.Errorf("memory %s: %s has no option %s", wanted, p.name, dmabuf)
	}
	return peerMemory, nil
}

// optionNames returns the options that select the GPU, and dmabuf.
func (g *GPU) optionNames() (selection, dmabuf string) {
	if g.nvidia {
		return "--use_cuda_bus_id", "--use_cuda_dmabuf"
	}
	return "--use_rocm", "--use_rocm_dmabuf"
}

// gpuArguments returns the options of an end's memory; dmabuf follows the selection of the GPU.
func (e *trafficEnd) gpuArguments() []string {
	if e.Memory == hostMemory || e.GPU == nil {
		return nil
	}
	selection, dmabuf := e.GPU.optionNames()
	value := strconv.Itoa(e.GPU.rocm)
	if e.GPU.nvidia {
		value = e.GPU.Address.String()
	}
	arguments := []string{selection + "=" + value}
	if e.Memory == dmaBuf {
		arguments = append(arguments, dmabuf)
	}
	return arguments
}

// commonArguments returns the arguments that all tests have. Without -x perftest chooses the GID on Ethernet
// itself: RoCE v2 before v1, IPv4 before IPv6 (get_best_gid_index in src/perftest_communication.c, since
// 4.1).
func (e *trafficEnd) commonArguments(tcp int) []string {
	arguments := []string{"-F", "-d", e.RDMA, "-i", port, "-p", strconv.Itoa(tcp)}
	return append(arguments, e.gpuArguments()...)
}

// bandwidthArguments returns the arguments of ib_write_bw.
func (p *trafficPlan) bandwidthArguments(e *trafficEnd, tcp int) []string {
	amount := []string{"-D", strconv.Itoa(p.Seconds)}
	if p.GiB > 0 {
		amount = []string{"-n", strconv.Itoa(p.GiB * (1 << 30 / messageBytes))}
	}
	return append(append(e.commonArguments(tcp), amount...), "-s", strconv.Itoa(messageBytes),
		"-t", strconv.Itoa(messagesInFlight), "--report_gbits")
}

// latencyArguments returns the arguments of ib_read_lat.
func (p *trafficPlan) latencyArguments(e *trafficEnd, tcp int) []string {
	return append(e.commonArguments(tcp),
		"-n", strconv.Itoa(latencyIterations), "-s", strconv.Itoa(latencyBytes))
}

// hidesGPUs reports whether a variable renumbers or hides GPUs. The index of a GPU counts all GPUs of the
// container.
func hidesGPUs(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{
		"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
	}, name)
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

// runProgram runs the program and returns its output, standard error last. The end of ctx ends the program.
func (p program) runProgram(ctx context.Context, environment []string, arguments ...string) (string, error) {
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
		err = fmt.Errorf("run %s %s: %w: %s", p.name, strings.Join(arguments, " "), err, failureReason(output))
	}
	return output, err
}

// parseBandwidth reads the bandwidth of ib_write_bw --report_gbits and the bytes of the measured time, in the
// line below "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]" (RESULT_FMT_G
// and REPORT_FMT in perftest's src/perftest_parameters.h; the same since version 4.1).
func parseBandwidth(output string) (gbps float64, bytes uint64, err error) {
	fields, err := resultRow(output, "BW average[Gb/sec]", 5)
	if err != nil {
		return 0, 0, err
	}
	size, iterations := fields[0], fields[1]
	if iterations == 0 || fields[3] == 0 {
		return 0, 0, errors.New("read the result: no message arrived in the measured time")
	}
	return fields[3], uint64(size * iterations), nil
}

// parseLatency reads the median in µs from the line below "#bytes #iterations t_min[usec] t_max[usec]
// t_typical[usec] t_avg[usec] …" (RESULT_FMT_LAT).
func parseLatency(output string) (float64, error) {
	fields, err := resultRow(output, "t_typical[usec]", 6)
	if err != nil {
		return 0, err
	}
	return fields[4], nil
}

// resultRow returns the numbers of the line below the heading with a word: at least so many, finite and not
// negative, the product of the first two below 2^63.
func resultRow(output, word string, least int) ([]float64, error) {
	below := false
	for line := range strings.Lines(output) {
		if !below {
			below = strings.Contains(line, "#bytes") && strings.Contains(line, word)
			continue
		}
		var numbers []float64
		for field := range strings.FieldsSeq(line) {
			n, err := strconv.ParseFloat(field, 64)
			if err != nil || math.IsInf(n, 0) || math.IsNaN(n) || n < 0 {
				return nil, fmt.Errorf("read the result: %.200q has no number", line)
			}
			numbers = append(numbers, n)
		}
		if len(numbers) < least || numbers[0]*numbers[1] >= 1<<63 {
			return nil, fmt.Errorf("read the result: %.200q is no result", line)
		}
		return numbers, nil
	}
	return nil, fmt.Errorf("read the result: no line below %q", word)
}

// hints are causes of perftest's errors.
var hints = []struct{ text, hint string }{
	{"Couldn't allocate MR", "the NIC cannot register the memory: the container's limit of locked memory " +
		"(memlock; capability IPC_LOCK), or, for a GPU's memory, no dmabuf and no nvidia_peermem"},
	{"Failed status 12", "no answer over the fabric: the two ports do not reach each other"},
	{"Unable to find the Infiniband/RoCE device", "the RDMA device is not in the container, or belongs to " +
		"another network namespace"},
	{"to RTR", "the two ports do not reach each other: the kernel delivers packets between two addresses of " +
		"one network namespace itself"},
	{"Couldn't listen to port", "the TCP port is in use: --traffic-port"},
	{"Found Incompatibility issue with GID types", "the two ends have GIDs of different IP versions"},
}

// failureReason returns the last lines of a failed program's output that are not decoration, with a hint.
func failureReason(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if strings.Trim(line, "-*") != "" {
			lines = append(lines, line)
		}
	}
	text := fmt.Sprintf("%.600s", strings.Join(lines[max(len(lines)-3, 0):], "; "))
	for _, h := range hints {
		if strings.Contains(output, h.text) {
			return text + " (" + h.hint + ")"
		}
	}
	return text
}

// notServed reports whether a client ended because the server does not listen, or has no address yet.
func notServed(output string) bool {
	return strings.Contains(output, "Couldn't connect to") || strings.Contains(output, "Problem in resolving")
}

// noGPULatency reports whether the latency test does not support the GPU's memory (perftest 4.5).
func noGPULatency(output string) bool {
	return strings.Contains(output, "supports CUDA only in BW tests")
}

var rocmBus = regexp.MustCompile(`Using ROCm Device with ID: \d+, .*PCI Bus ID: 0x([0-9a-fA-F]{1,2})\b`)

// checkGPU returns an error if the program reports another GPU than the end's. For CUDA the option names the
// address.
func checkGPU(output string, gpu *GPU) error {
	m := rocmBus.FindStringSubmatch(output)
	if m == nil || gpu == nil {
		return nil
	}
	bus, err := strconv.ParseUint(m[1], 16, 8)
	if err != nil || uint8(bus) != gpu.Address.Bus {
		return fmt.Errorf("check the GPU: perftest used the GPU on PCI bus 0x%s instead of %s", m[1], gpu.Address)
	}
	return nil
}
