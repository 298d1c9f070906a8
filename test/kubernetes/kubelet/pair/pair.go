// SPDX-License-Identifier: Apache-2.0

// Package pair runs the two built daemons as processes of their own, on a machine and a kubelet in folders,
// and reads what they log.
package pair

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// Options say on what the pair works.
type Options struct {
	Bin            string // folder with tandem-gpu and tandem-rdma
	Sysfs          string // the machine, laid out
	Dev            string // its device nodes
	Kubelet        string // the kubelet's folder
	Run            string // folder of the coordination socket
	DevInfo        string // folder of the device-info files for Multus
	Config         string // SR-IOV config.json
	ResourcePrefix string // of resources that the config gives none
	Coordinated    bool   // false: no preferred allocation, as stock plugins

	Flags, Variables       []string // of both, beside those and this process's own variables
	Account                string   // folder with what the service account of their pods is given; "" for none
	GPUFlags, GPUVariables []string // of tandem-gpu alone
}

// Pair is both daemons, running.
type Pair struct {
	GPU, RDMA *Daemon
	Log       *Log // of both, across restarts
}

// Start starts both daemons. It does not wait for them to register.
func Start(o Options) (*Pair, error) {
	common := []string{
		"--sysfs-root=" + o.Sysfs, "--dev-root=" + o.Dev, "--kubelet-dir=" + o.Kubelet, "--run-dir=" + o.Run,
		"--log-format=json", fmt.Sprintf("--preferred-allocation=%t", o.Coordinated),
	}
	common = append(common, o.Flags...)
	rdma := []string{
		"--config-file=" + o.Config, "--resource-prefix=" + o.ResourcePrefix, "--devinfo-dir=" + o.DevInfo,
	}
	log := newLog()
	daemon := func(name string, flags, variables []string) *Daemon {
		return &Daemon{
			path: filepath.Join(o.Bin, name), args: slices.Concat(common, flags),
			variables: slices.Concat(o.Variables, variables), account: o.Account, log: log,
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

// Stop asks both daemons to end and waits until they have.
func (p *Pair) Stop() error { return errors.Join(p.GPU.Stop(), p.RDMA.Stop()) }
