// SPDX-License-Identifier: Apache-2.0

// Package playground is a node to try Tandem on without hardware and cluster: a recorded machine laid out in
// a folder, the built daemons on it, and a kubelet (package kubelet) that admits pods.
package playground

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/health"
	"github.com/tandem-k8s/tandem/test/playground/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// MostVFs is the maximum number of VFs that a playground adds to a NIC.
const MostVFs = 64

// Options are a machine and the place of its playground.
type Options struct {
	Machine   string // a recording
	VFs       int    // VFs to add to each NIC with RDMA; 0 for none
	Directory string // "" for a temporary one, which Close removes
	Programs  string // folder with tandem, tandem-gpu and tandem-rdma
}

// Playground is a node, not safe for concurrent use.
type Playground struct {
	Layout
	options   Options
	title     string
	machine   *machine.Node
	gpus      gpu.Maker
	kubelet   *kubelet.Kubelet
	standIn   *standIns // nil unless the GPUs are NVIDIA's
	gpu, rdma *daemon
	faults    map[topology.Address]map[health.State]func() error // repairs of the faulty functions
}

// Open reads the machine and lays the machine out. Open starts nothing.
func Open(o Options) (*Playground, error) {
	from := machine.Source{Recording: o.Machine, VFs: o.VFs}
	n, err := machine.Read(&from)
	if errors.Is(err, recording.ErrHasVFs) {
		return nil, fmt.Errorf("%w; omit --vfs", err)
	}
	if err != nil {
		return nil, err
	}
	p := &Playground{Layout: Layout{o.Directory}, options: o, title: from.Title(), machine: n,
		faults: map[topology.Address]map[health.State]func() error{}}
	if o.Directory == "" {
		p.Dir, err = os.MkdirTemp("", "tandem-play-")
		if err != nil {
			return nil, fmt.Errorf("make a folder: %w", err)
		}
	} else {
		p.Dir, err = filepath.Abs(o.Directory)
		if err != nil {
			return nil, fmt.Errorf("find the folder: %w", err)
		}
	}
	p.identify()
	if err := p.LayOut(n.Sys, p.standIn); err != nil {
		return nil, errors.Join(err, p.remove())
	}
	return p, nil
}

// identify sets the maker of the machine's GPUs, if it has any.
func (p *Playground) identify() {
	if len(p.machine.GPUs) == 0 {
		return
	}
	p.gpus, _ = gpu.MakerOf(gpu.Vendor(p.machine.GPUs[0])) // Read lists only GPUs of makers
	if p.gpus.Vendor == gpu.NVIDIA {
		p.standIn = findNVIDIA(p.machine.Tree)
	}
}

// Close stops what Start has started, in order, and removes a temporary directory.
func (p *Playground) Close() error {
	var errs []error
	for _, repairs := range p.faults {
		for _, repair := range repairs {
			errs = append(errs, repair())
		}
	}
	for _, d := range []*daemon{p.gpu, p.rdma} {
		if d != nil {
			errs = append(errs, d.stop())
		}
	}
	if p.kubelet != nil {
		p.kubelet.Stop()
	}
	return errors.Join(append(errs, p.remove())...)
}

func (p *Playground) remove() error {
	if p.options.Directory != "" {
		return nil
	}
	if err := os.RemoveAll(p.Dir); err != nil {
		return fmt.Errorf("remove the folder: %w", err)
	}
	return nil
}

// Title returns the name of the machine, for people.
func (p *Playground) Title() string { return p.title }

// Flags returns the flags of tandem's commands for this node.
func (p *Playground) Flags() Flags {
	return Flags{
		Sysfs: "--sysfs-root=" + p.SysfsRoot(), Dev: "--dev-root=" + p.dev(), Proc: "--proc-root=" + p.proc(),
		Kubelet: "--kubelet-dir=" + p.KubeletDir(), Run: "--run-dir=" + p.RunDir(),
		Config: "--config=" + p.config(),
	}
}

// Flags are flags of the commands of tandem.
type Flags struct{ Sysfs, Dev, Proc, Kubelet, Run, Config string }

// Note returns the difference between this playground and a node, for people; "" for none.
func (p *Playground) Note() string {
	if p.standIn == nil {
		return ""
	}
	return "tandem-gpu finds NVIDIA GPUs by the driver's library, which no recording has: a stand-in in this " +
		"process offers the GPUs that sysfs names, with made-up UUIDs, without partitions and the health " +
		"that NVML reports"
}

// Introduction describes the playground.
func (p *Playground) Introduction() string {
	return fmt.Sprintf("%s: %s and %s with RDMA. Type help for the commands.\n", p.title,
		cli.Count(len(p.machine.GPUs), "GPU"), cli.Count(len(p.machine.RDMANICs()), "NIC"))
}

// PageCommand returns the command that serves the live page from another terminal.
func (p *Playground) PageCommand() string {
	f := p.Flags()
	tandem := filepath.Join(p.options.Programs, "tandem")
	return fmt.Sprintf("'%s' status --serve :8080 '%s' '%s' '%s'", tandem, f.Run, f.Kubelet, f.Sysfs)
}
