// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// bandwidth is the result of ib_write_bw --report_gbits.
type bandwidth struct {
	Gbps  float64
	Bytes uint64 // of the measured time
}

// parseBandwidth reads the line below "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]"
// (RESULT_FMT_G and REPORT_FMT in perftest's src/perftest_parameters.h; the same since version 4.1).
func parseBandwidth(output string) (bandwidth, error) {
	fields, err := row(output, "BW average[Gb/sec]", 5)
	if err != nil {
		return bandwidth{}, err
	}
	size, iterations := fields[0], fields[1]
	if iterations == 0 || fields[3] == 0 {
		return bandwidth{}, errors.New("read the result: no message arrived in the measured time")
	}
	return bandwidth{Gbps: fields[3], Bytes: uint64(size * iterations)}, nil
}

// parseLatency reads the median in µs from the line below "#bytes #iterations t_min[usec] t_max[usec]
// t_typical[usec] t_avg[usec] …" (RESULT_FMT_LAT).
func parseLatency(output string) (float64, error) {
	fields, err := row(output, "t_typical[usec]", 6)
	if err != nil {
		return 0, err
	}
	return fields[4], nil
}

// row returns the numbers of the line below the heading with a word: at least so many, finite and not
// negative, the product of the first two below 2^63.
func row(output, word string, least int) ([]float64, error) {
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

// reason returns the last lines of a failed program's output that are not decoration, with a hint.
func reason(output string) string {
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
func checkGPU(output string, gpu *runtimeGPU) error {
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
