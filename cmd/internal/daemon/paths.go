// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// Paths are the flags for the files of a node. The folders default to those of a live node; tests and tools
// set them to a recorded machine and to a kubelet's folder elsewhere.
type Paths struct {
	SysfsRoot    string
	DevRoot      string
	KubeletDir   string
	RunDir       string
	TopologyFile string
	CDIDir       string // of the CDI specifications of claims; of another flag of the program
}

// register adds the flags to a set.
func (p *Paths) register(set *pflag.FlagSet) {
	set.StringVar(&p.SysfsRoot, "sysfs-root", "/sys", "root of sysfs")
	set.StringVar(&p.DevRoot, "dev-root", "/dev", "folder of the device nodes")
	set.StringVar(&p.KubeletDir, "kubelet-dir", kubelet.DefaultDir, "root folder of the kubelet (--root-dir)")
	set.StringVar(&p.RunDir, "run-dir", "",
		"folder of the coordination socket, shared by tandem-gpu and tandem-rdma "+
			"(default device-plugins/tandem in --kubelet-dir)")
	set.StringVar(&p.TopologyFile, "topology-file", "",
		"NCCL topology file (NCCL_TOPO_FILE) with the PCIe switches of the machine, "+
			"for a guest with a flat PCI tree in sysfs")
	plainflag.Files.PutRest(set)
}

// Sysfs returns the folder to read the machine from.
func (p Paths) Sysfs() (fs.FS, error) { return openRoot("--sysfs-root", p.SysfsRoot) }

// Dev returns the folder with the device nodes.
func (p Paths) Dev() (fs.FS, error) { return openRoot("--dev-root", p.DevRoot) }

func openRoot(flag, dir string) (fs.FS, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", flag, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open %s: %s is not a folder", flag, dir)
	}
	return os.DirFS(dir), nil
}

// Topology returns the file with the places of devices, or nil if the flags name none.
func (p Paths) Topology() (*nccl.File, error) {
	if p.TopologyFile == "" {
		return nil, nil
	}
	file, err := nccl.Load(p.TopologyFile)
	if err != nil {
		return nil, fmt.Errorf("use --topology-file: %w", err)
	}
	return file, nil
}

// RunFolder returns the folder of the coordination socket: --run-dir, else a folder below the kubelet's that
// every device plugin pod mounts.
func (p Paths) RunFolder() string { return cmp.Or(p.RunDir, coordination.RunDir(p.KubeletDir)) }
