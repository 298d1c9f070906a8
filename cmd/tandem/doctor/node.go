// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io/fs"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/offer"
	"github.com/tandem-k8s/tandem/coordination/mode"
	"github.com/tandem-k8s/tandem/topology"
)

// Device is a GPU or VF as its plugin announces the device to the kubelet.
type Device = offer.Device

// Node is the input of an examination. The folders are those of a live node or of a node laid out elsewhere.
type Node struct {
	Sys       fs.FS // sysfs
	Tree      *topology.Tree
	GPUs, VFs []Device // that the plugins offer
	// why the VFs are those of all NICs with RDMA instead of the offered VFs; "" for offered VFs
	Guess      string
	Links      []topology.Link
	DevRoot    string // "/dev"
	KubeletDir string // "/var/lib/kubelet"
	RunDir     string // "/var/lib/kubelet/device-plugins/tandem"
	ProcRoot   string // "/proc", for the kubelet's command line; "" for none
	// file with the kubelet's configuration; "" for the file of the command line or
	// <KubeletDir>/config.yaml
	Config    string
	ConfigDir string    // folder with drop-ins; "" for the folder of the command line
	Now       time.Time // to compare the age of files with the age of the kubelet's process
	CPUs      int       // whole CPUs that containers request, for the request shapes; 0 for none
	Mode      mode.Mode // of the node, "" for none: see RunningMode
	Notes     []string  // features that the DRA driver goes without
	Refused   Refused   // see AskRefused
	Plugins   Plugins   // see AskPlugins
}

// Kubelet returns the node as its kubelet sees it.
func (n Node) Kubelet() managers.Node {
	return managers.Node{
		Sys: n.Sys, Tree: n.Tree, KubeletDir: n.KubeletDir, ProcRoot: n.ProcRoot,
		Config: n.Config, ConfigDir: n.ConfigDir, Now: n.Now, Mode: n.Mode,
	}
}
