// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// View is a container's view of its devices.
type View struct {
	GPUs, VFs []string // paths below /sys
	Verified  bool
	Verdict   string // the last line of tandem verify
}

// look reads a container's log until its last line.
func (k *Cluster) look(ctx context.Context, pod, container string) (*View, error) {
	v := &View{}
	err := k.Follow(ctx, func(output io.Reader) error {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if v.read(lines.Text()) {
				return nil
			}
		}
		cut := fmt.Errorf("container %s of pod %s did not finish its look", container, pod)
		return errors.Join(cut, ctx.Err())
	}, "logs", "--follow", pod, "--container", container)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// read parses one line and reports whether it was the last.
func (v *View) read(line string) bool {
	word, rest, _ := strings.Cut(line, " ")
	_, path, _ := strings.Cut(rest, " ")
	switch word {
	case "gpu":
		v.GPUs = append(v.GPUs, path)
	case "vf":
		v.VFs = append(v.VFs, path)
	case "verify":
		v.Verified = rest == "0"
		return true
	default:
		if line != "" {
			v.Verdict = line
		}
	}
	return false
}

// Pairs counts the possible pairs on one switch of the container's devices by their paths, independently of
// Tandem's distances.
func (v *View) Pairs() int {
	gpus := map[string]int{}
	for _, path := range v.GPUs {
		gpus[switchOf(path)]++
	}
	pairs := 0
	for _, path := range v.VFs {
		if s := switchOf(path); gpus[s] > 0 {
			gpus[s]--
			pairs++
		}
	}
	return pairs
}

// switchOf returns the part of a device's path up to its switch: host bridge, root port, upstream port.
func switchOf(path string) string {
	elements := strings.Split(path, "/") // "", sys, devices, pci0000:20, 0000:20:00.0, 0000:21:00.0, …
	return strings.Join(elements[:min(6, len(elements))], "/")
}
