// SPDX-License-Identifier: Apache-2.0

// Command demo demonstrates the two plugins on recorded machines: it admits pods through the real kubelet
// managers and prints a container's GPUs and VFs with their distances, next to those of the same request with
// uncoordinated plugins. It exits with 1 unless every placement is optimal on the NUMA nodes that the kubelet
// chose.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
	"github.com/tandem-k8s/tandem/test/kubernetes/machine"
)

func main() {
	// A closed pipe ("demo | head") must not end the demo before its cleanup. The signal is ignored, not
	// handled: sockets with a closed peer would raise a handled one too.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout); {
	case err == nil, errors.Is(err, pflag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run shows the set-ups of the machines on the command line, by default of all machines.
func run(ctx context.Context, args []string, out io.Writer) error {
	node.Silence()
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	bin := flags.String("bin", "bin", "folder with tandem-gpu and tandem-rdma")
	nvml := flags.String("nvml", "",
		"stand-in for NVIDIA's NVML library (make nvml); without a library, NVIDIA machines are skipped")
	names := flags.StringArray("machine", nil, "recorded machine to show, may be repeated (default all)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*names)
	if err != nil {
		return err
	}
	p := &printer{out}
	p.legend()
	var shown []result
	var leftOut []string
	for _, s := range chosen {
		s.Bin, s.NVML = *bin, *nvml
		if machine.GPUsOf(s.Machine) == rig.NVIDIA && s.NVML == "" {
			leftOut = append(leftOut, s.Machine)
			continue
		}
		results, err := show(ctx, p, s)
		if err != nil {
			return err
		}
		shown = append(shown, results...)
	}
	p.leftOut(leftOut)
	return p.summary(shown)
}

// choose returns the set-ups of these machines, or all.
func choose(names []string) ([]setup, error) {
	if len(names) == 0 {
		return setups, nil
	}
	var chosen []setup
	for _, name := range names {
		of := slices.DeleteFunc(slices.Clone(setups), func(s setup) bool { return s.Machine != name })
		if len(of) == 0 {
			return nil, fmt.Errorf("no machine %q; there are %s", name, strings.Join(machineNames(), ", "))
		}
		chosen = append(chosen, of...)
	}
	return chosen, nil
}
