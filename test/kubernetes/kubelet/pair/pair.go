// SPDX-License-Identifier: Apache-2.0

// Package pair runs the two built daemons as processes, with the machine and the kubelet in folders, and
// reads their logs.
package pair

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// Options configure a pair.
type Options struct {
	Bin            string // folder with tandem-gpu and tandem-rdma
	Sysfs          string // the machine, laid out
	Dev            string // its device nodes
	Kubelet        string // the kubelet's folder
	Run            string // folder of the coordination socket
	DevInfo        string // folder of the device-info files for Multus
	Config         string // SR-IOV config.json
	ResourcePrefix string // of resources without a prefix in the config
	Coordinated    bool   // false: no preferred allocation, as stock plugins

	GPUFlags, GPUVariables []string // of tandem-gpu alone
}

// Pair is both daemons, running.
type Pair struct {
	GPU, RDMA *Daemon
	Log       *Log // of both, across restarts
}

// Start starts both daemons, without waiting for their registration.
func Start(o Options) (*Pair, error) {
	common := []string{
		"--sysfs-root=" + o.Sysfs, "--dev-root=" + o.Dev, "--kubelet-dir=" + o.Kubelet, "--run-dir=" + o.Run,
		"--log-format=json", fmt.Sprintf("--preferred-allocation=%t", o.Coordinated),
	}
	rdma := []string{
		"--config-file=" + o.Config, "--resource-prefix=" + o.ResourcePrefix, "--devinfo-dir=" + o.DevInfo,
	}
	log := newLog()
	daemon := func(name string, flags, variables []string) *Daemon {
		return &Daemon{
			path: filepath.Join(o.Bin, name), args: slices.Concat(common, flags),
			variables: variables, log: log,
		}
	}
	p := &Pair{
		GPU: daemon("tandem-gpu", o.GPUFlags, o.GPUVariables), RDMA: daemon("tandem-rdma", rdma, nil), Log: log,
	}
	if err := p.GPU.Start(); err != nil {
		return nil, err
	}
	if err := p.RDMA.Start(); err != nil {
		return nil, errors.Join(err, p.GPU.Stop())
	}
	return p, nil
}

// Stop signals both daemons to end and waits.
func (p *Pair) Stop() error { return errors.Join(p.GPU.Stop(), p.RDMA.Stop()) }
