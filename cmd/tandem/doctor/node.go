// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// Node is the input of an examination: where the parts of the node are, then what [Node.Read] has read. The
// folders are those of a live node or of a node laid out elsewhere.
type Node struct {
	From machine.Source
	// config.json of the VFs; "" for those of the running tandem-rdma, or of a pod's ConfigMap
	PoolsFile  string
	Vendor     string // --vendor of tandem-gpu, "" if unknown
	DevRoot    string // "/dev"
	CDIDir     string // of the CDI specifications of claims
	RunDir     string // "/var/lib/kubelet/device-plugins/tandem"
	KubeletDir string // "/var/lib/kubelet"
	ProcRoot   string // "/proc", for the kubelet's command line; "" for none
	// file with the kubelet's configuration; "" for the file of the command line or
	// <KubeletDir>/config.yaml
	Config    string
	ConfigDir string // folder with drop-ins; "" for the folder of the command line
	// name of the node in a report for "kubectl tandem doctor", whose reader is not on the node and whose
	// Config is the kubelet's own answer; "" in a report on the node
	ReadElsewhere string
	CPUs          int         // whole CPUs that containers request, for the request shapes; 0 for none
	Counted       RefusedPods // by somebody else than the kubelet; none: the kubelet is asked

	Sys   fs.FS          // sysfs; nil for none
	Tree  *topology.Tree // nil for none
	Links []topology.Link
	Now   time.Time         // to compare the age of files with the age of the kubelet's process
	Mode  coordination.Mode // of the node, "" for none; in the mode of DRA the managers align no devices
	GPUs  []model.Device    // that the plugins offer
	VFs   []model.Resource  // that the plugins offer, of each pool that has some, by name
	// why the VFs are those of all NICs with RDMA instead of the offered VFs; "" for offered VFs
	Guess    string
	Mounted  string   // the ConfigMap of a pod that selects the VFs; "" for none
	Pools    Pools    // of the configuration
	Notes    []string // features that the daemons go without
	Refused  Refused
	Recorded bool // Sys, Tree, GPUs, VFs and Links alone are known

	status           coordinator.Status // of the running daemons; the zero value without an answer
	noAnswer         error              // why nobody answers; nil before the daemons are asked
	asked            bool
	lost             []string  // resources with devices that the kubelet lacks or has from another plugin
	silent           error     // why a daemon, or the kubelet, does not answer
	settings         *settings // nil before they are read
	checkpoint       kubelet.Checkpoint
	unreadCheckpoint error
	hardware
	complexes complexes
	shapes    shapes
	closed    []string // files and folders without permission
}

// Read reads the node once: the machine, the status of its daemons, the offered devices and the refused pods.
func (n *Node) Read(ctx context.Context) error {
	m, err := n.readMachine(ctx)
	if err != nil {
		return err
	}
	n.GPUs = m.GPUDevices()
	if n.Recorded {
		if n.PoolsFile == "" {
			n.Guess = "no --config"
		}
		n.VFs, err = n.configuredVFs(m)
		return err
	}
	n.readRefused(ctx)
	n.VFs, err = n.readVFs(m)
	return err
}

// readMachine reads the machine from sysfs or the recording, and asks the daemons of a node that is none.
func (n *Node) readMachine(ctx context.Context) (*machine.Node, error) {
	m, err := machine.Read(&n.From)
	if err != nil {
		return nil, err
	}
	n.Sys, n.Tree, n.Links, n.Recorded = m.Sys, m.Tree, m.Links, !n.From.IsLive()
	if !n.Recorded {
		n.findFolders()
		n.AskMode(ctx)
	}
	return m, nil
}

// findFolders completes the places of the node that nobody has named. The folder of a kubelet with an unknown
// process, of which [unknownProcess] tells, is the usual one.
func (n *Node) findFolders() {
	if n.KubeletDir == "" {
		n.KubeletDir = kubelet.DefaultDir
		if p, err := machine.FindProcess(n.ProcRoot); err == nil {
			n.KubeletDir = p.RootDir()
		}
	}
	n.RunDir = cmp.Or(n.RunDir, coordination.FindRunDir(n.KubeletDir))
	n.Now, n.CDIDir = time.Now(), coordination.CDIDir
}

// readVFs returns the VFs of the configuration, or of the running tandem-rdma, or of a ConfigMap that the
// kubelet has mounted for a pod, or of all NICs with RDMA. The last case is a guess.
func (n *Node) readVFs(m *machine.Node) ([]model.Resource, error) {
	if n.PoolsFile != "" {
		return n.configuredVFs(m)
	}
	vfs, err := n.runningVFs()
	if err == nil {
		return vfs, nil
	}
	guess := "no --config, and " + err.Error()
	n.PoolsFile, err = mountedConfig(n.KubeletDir, strings.ToLower(n.From.Title()))
	if err == nil && n.PoolsFile != "" {
		vfs, err = n.configuredVFs(m)
		if err == nil {
			n.Mounted = n.PoolsFile
			return vfs, nil
		}
	}
	if err != nil {
		guess += ", and " + err.Error()
	}
	n.PoolsFile, n.Guess = "", guess
	return n.configuredVFs(m)
}

// configuredVFs returns the VFs of the configuration, or of all NICs with RDMA.
func (n *Node) configuredVFs(m *machine.Node) ([]model.Resource, error) {
	if !n.Recorded {
		m.Kubelet = n.hintSettings()
	}
	vfs, notes, err := m.VFPools(n.PoolsFile)
	if err == nil && n.PoolsFile != "" {
		n.Pools = Pools{File: n.PoolsFile, Notes: notes}
		n.Pools.Choices, err = m.Choices(n.PoolsFile)
	}
	return vfs, err
}

// hintSettings returns the kubelet's settings for a decision about hints, under the policy that doctor
// requires; the zero value for unknown ones.
func (n *Node) hintSettings() model.Kubelet {
	f := n.readSettings()
	known, err := f.Model()
	if f.unread != nil || err != nil {
		return model.Kubelet{}
	}
	known.TopologyManagerPolicy = restricted
	return known
}

// Pools is the result of a config.json on the machine.
type Pools struct {
	File    string
	Notes   []string // ignored settings, and devices that the machine lacks
	Choices []pools.Choice
}

// driverFix returns the fix for misspelt drivers, none without them.
func (p Pools) driverFix() []string {
	var misspelt []string
	for _, c := range p.Choices {
		misspelt = append(misspelt, c.Misspelt...)
	}
	if len(misspelt) == 0 {
		return nil
	}
	return []string{"correct the driver in config.json: " + strings.Join(misspelt, ", ")}
}

// writeTo writes the result for people, nothing if every device is selected.
func (p Pools) writeTo(out *cli.Text) {
	short := slices.DeleteFunc(slices.Clone(p.Choices), func(c pools.Choice) bool {
		return c.Rejected == 0 && c.Selected > 0
	})
	if len(p.Notes)+len(short) == 0 {
		return
	}
	out.Line("Pools of ", p.File, ":")
	for _, note := range p.Notes {
		out.Row("  note", note)
	}
	for _, c := range short {
		name := c.Resource
		if c.Of > 1 {
			name += fmt.Sprintf(", selector %d of %d", c.Selector, c.Of)
		}
		fmt.Fprintf(out, "  %s: selects %d, rejects %d\n", name, c.Selected, c.Rejected)
		if c.Rejected > 0 {
			out.Row("    by     ", c.Summary())
		}
		for _, miss := range c.Nearest {
			out.Row("    nearest", miss)
		}
	}
	out.Line()
}

// largestConfigMap is the limit of a ConfigMap's data (validation of core/v1 in Kubernetes).
const largestConfigMap = 1 << 20

// mountedConfig returns the configuration of VFs among the ConfigMaps that a kubelet has mounted for its
// pods, such as that of the SR-IOV network device plugin; "" for none that can be read. Of a ConfigMap with a
// key for each node, as that of the SR-IOV network operator, only the node's key counts. The error says that
// several differ.
func mountedConfig(kubeletDir, node string) (string, error) {
	names, err := filepath.Glob(filepath.Join(kubeletDir, "pods/*/volumes/kubernetes.io~configmap/*/*"))
	if err != nil {
		return "", fmt.Errorf("find ConfigMaps in %s: %w", kubeletDir, err)
	}
	known := map[string]bool{"": true} // contents
	var all []string
	for _, name := range names {
		_, err := os.Lstat(filepath.Join(filepath.Dir(name), node))
		if err == nil && filepath.Base(name) != node {
			continue
		}
		if content := configOfVFs(name); !known[content] {
			known[content], all = true, append(all, name)
		}
	}
	if len(all) > 1 {
		return "", fmt.Errorf("ConfigMaps of VFs differ: %s", strings.Join(all, ", "))
	}
	return strings.Join(all, ""), nil
}

// configOfVFs returns the content of a file with pools of VFs, "" for other files.
func configOfVFs(name string) string {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > largestConfigMap {
		return ""
	}
	var config struct {
		Pools []json.RawMessage `json:"resourceList"`
	}
	content, err := os.ReadFile(name)
	if err != nil || json.Unmarshal(content, &config) != nil || len(config.Pools) == 0 {
		return ""
	}
	return string(content)
}
