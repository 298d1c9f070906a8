// SPDX-License-Identifier: Apache-2.0

// Command vm is the end-to-end test: it boots a machine with a real kernel, real PCIe switches, NICs and VFs,
// makes the machine a node of a real cluster, installs Tandem from deployments like a user, and checks the
// devices of pods. "make e2e" runs it.
//
// QEMU emulates the machine; only the identities of the hardware are invented (guest/identity.go). The rest
// is the software of servers: Debian's kernel, containerd and runc, the kubelet, API server, scheduler and
// controllers of one release. Downloads and builds (2.5 GB) are kept in bin/vm: on two idle cores the first
// run takes some 35 minutes, later runs less than 20. The guest's clock is three times slower than the host's
// (machine/qemu.go), RDMA devices belong to the node's network namespace, and a bridge replaces sriov-cni.
//
// A run has network and process namespaces of its own. Results are bin/e2e.txt and bin/e2e.html; bin/vm/run
// has a folder of logs for each machine, walk.log with the output of the documents' commands, and for each
// failed pod a file with messages of Tandem and the kubelet.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/cluster"
	"github.com/tandem-k8s/tandem/test/vm/host"
	"github.com/tandem-k8s/tandem/test/vm/scenarios"
)

type options struct {
	scenarios.Options
	bin   string
	cache string
	run   bool // inside the namespaces
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin",
		"folder of the programs that \"make build nvml\" builds, and of the results")
	flag.StringVar(&o.cache, "cache", "bin/vm", "folder of downloads and builds")
	flag.BoolVar(&o.Short, "short", false, "run one boot with few pods; skip if a download is necessary")
	flag.IntVar(&o.Admissions, "admissions", 50, "number of random pods to admit and delete")
	flag.StringVar(&o.Machine, "machine", "", "emulated machine, mi300x or h100; empty for both")
	flag.IntVar(&o.VFs, "vfs", 0,
		"run only scenarios with this number of VFs per PF: 4 or 1 (mi300x), 2 (h100); 0 for all")
	flag.StringVar(&o.Setup, "setup", "",
		`run only setups whose name contains this text, such as "dra", and only the setups' pods`)
	flag.BoolVar(&o.Walk, "walk", false, "run only the walk of a new user through README and docs")
	flag.BoolVar(&o.Traffic, "traffic", false, "run only the RDMA traffic of pods")
	flag.BoolVar(&o.Upgrade, "upgrade", false, "run only the move to the version before, and back")
	flag.BoolVar(&o.Shell, "shell", false,
		"run no tests, but a shell with kubectl and helm beside one machine with an unconfigured kubelet")
	flag.BoolVar(&o.run, "run", false, "run with existing builds; for internal use")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := o.main(ctx); err != nil {
		if !errors.Is(err, errTold) {
			fmt.Fprintln(os.Stderr, "vm:", err)
		}
		os.Exit(1)
	}
}

func (o options) main(ctx context.Context) error {
	for _, dir := range []*string{&o.bin, &o.cache} {
		absolute, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		*dir = absolute
	}
	c := &build.Cache{Dir: o.cache, Progress: host.NewProgress(os.Stdout)}
	if o.run {
		if err := setUp(c); err != nil {
			return err
		}
		report := func(rows []scenarios.Row) error { return write(o.bin, rows) }
		return scenarios.Run(ctx, c, o.Options, report)
	}
	if os.Getuid() != 0 {
		return errors.New("run it as root: it makes namespaces of its own")
	}
	if o.Short {
		missing, err := c.Missing()
		if err != nil {
			return err
		}
		if missing != "" {
			c.Say("skipped: %s has not the %s that it takes; make e2e, without --short, puts them there",
				c.Dir, missing)
			return nil
		}
	}
	locked, err := c.Lock()
	if err != nil {
		return err
	}
	defer locked.Close()
	if err := c.All(ctx, build.Options{
		Bin: o.bin, User: !o.Short && !o.Traffic && !o.Upgrade && o.Setup == "",
		Upgrade: !o.Short && !o.Traffic && !o.Walk && !o.Shell && o.Setup == "",
		Node:    cluster.NodeName, Kubeconfig: cluster.NodeKubeconfig(),
	}); err != nil {
		return err
	}
	return enter(ctx)
}
