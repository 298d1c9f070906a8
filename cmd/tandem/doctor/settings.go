// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// Kubelet is the place of a kubelet: its files and its machine. The folders are those of a live node or of a
// node laid out elsewhere.
type Kubelet struct {
	Sys        fs.FS          // sysfs; nil for none
	Tree       *topology.Tree // nil for none
	KubeletDir string         // "/var/lib/kubelet"
	ProcRoot   string         // "/proc", for the kubelet's command line; "" for none
	// file with the kubelet's configuration; "" for the file of the command line or
	// <KubeletDir>/config.yaml
	Config    string
	ConfigDir string            // folder with drop-ins; "" for the folder of the command line
	Now       time.Time         // to compare the age of files with the age of the kubelet's process
	Mode      coordination.Mode // of the node, "" for none; in the mode of DRA the managers align no devices
	// name of the node in a report for "kubectl tandem doctor", whose reader is not on the node and whose
	// Config is the kubelet's own answer; "" in a report on the node
	ReadElsewhere string
}

// ManagerSettings are the kubelet's settings, and the parts of the machine to which they refer.
type ManagerSettings struct {
	kubelet.Settings
	At        kubelet.ConfigFiles
	NUMANodes int
	CPUs      map[int]topology.CPUSet // by NUMA node
	Changed   []string                // files of the settings that are younger than the kubelet
}

// configFiles returns where a process has the settings.
func (k Kubelet) configFiles(p machine.Process) kubelet.ConfigFiles {
	given := kubelet.ConfigFiles{Config: k.Config, Dir: k.ConfigDir}
	if k.ReadElsewhere != "" && k.Config != "" {
		given.Name = "configz of the kubelet of " + k.ReadElsewhere
	}
	return p.Files(given, k.KubeletDir)
}

// Read reads the kubelet's settings.
func (k Kubelet) Read(p machine.Process) (f ManagerSettings, err error) {
	f.At = k.configFiles(p)
	if f.Settings, err = kubelet.ReadSettings(f.At, p.Flags); err != nil {
		return f, err
	}
	if k.Sys != nil {
		if f.CPUs, err = topology.CPUs(k.Sys); err != nil {
			return f, err
		}
	}
	if k.Tree != nil {
		f.NUMANodes = len(k.Tree.NUMANodes())
	}
	f.Changed = p.ChangedSince(k.Now, f.Files...)
	return f, nil
}

// ReservedSet returns the CPUs that no container gets: the named ones or, of an amount, the lowest. Which
// CPUs the static policy takes of an amount depends on cores and sockets (takeByTopology in
// pkg/kubelet/cm/cpumanager): rely on their number on a NUMA node alone.
func (f ManagerSettings) ReservedSet() (topology.CPUSet, error) {
	if f.ReservedCPUs != "" {
		return topology.ParseCPUSet(f.ReservedCPUs)
	}
	set, all := topology.CPUSet{}, f.AllCPUs()
	amount, err := f.ReservedAmount()
	for n := 0; len(set) < amount && len(set) < len(all); n++ {
		if all[n] {
			set[n] = true
		}
	}
	return set, err
}

// HasReserved reports whether CPUs are reserved, by name or by amount. An amount that cannot be read is one
// for [ManagerSettings.Refusals].
func (f ManagerSettings) HasReserved() bool {
	amount, err := f.ReservedAmount()
	return f.ReservedCPUs != "" || amount > 0 || err != nil
}

// AllCPUs returns every CPU of the node.
func (f ManagerSettings) AllCPUs() topology.CPUSet {
	all := topology.CPUSet{}
	for _, set := range f.CPUs {
		maps.Copy(all, set)
	}
	return all
}

// FirstCPUs returns the first CPU of every NUMA node: those to reserve for the system.
func (f ManagerSettings) FirstCPUs() string {
	set := topology.CPUSet{}
	for _, list := range f.CPUs {
		for n := 0; len(list) > 0; n++ {
			if list[n] {
				set[n] = true
				break
			}
		}
	}
	if len(set) == 0 {
		return "0"
	}
	return set.String()
}

// The options of the Topology Manager (pkg/kubelet/cm/topologymanager/policy_options.go).
const (
	preferClosest  = "prefer-closest-numa-nodes"
	maxNodesOption = "max-allowable-numa-nodes"
)

// AllowedNodes returns the number of NUMA nodes that the kubelet allows (maxAllowableNUMANodes in
// pkg/kubelet/cm/topologymanager).
func (f ManagerSettings) AllowedNodes() int {
	allowed, _ := strconv.Atoi(f.PolicyOptions[maxNodesOption]) // none is 0
	return max(model.MaxNodes, allowed)
}

// optionsSay returns the evidence for an option of the Topology Manager.
func (f ManagerSettings) optionsSay() string {
	return f.Says("topologyManagerPolicyOptions", fmt.Sprint(f.PolicyOptions))
}

// The values that Tandem needs or advises.
const (
	restricted     = "restricted"
	singleNode     = "single-numa-node"
	scopeContainer = "container"
	static         = "static"
)

// otherConfig is the remedy if the kubelet's configuration cannot be read.
const otherConfig = "if the kubelet reads another file: tandem doctor --kubelet-config FILE " +
	"(ps -C kubelet -o args shows --config)"

// configureSetting returns the way to a setting, and staticCPUs to exclusive CPUs.
func configureSetting(setting string) string {
	return "in the kubelet's configuration: " + setting + " (tandem doctor --drop-in prints all settings)"
}

func staticCPUs(setting string) string {
	return "in the kubelet's configuration: " + setting +
		" (tandem doctor --drop-in --static-cpus prints all settings)"
}

// restartAround returns the commands with which a kubelet takes over a new configuration.
func restartAround(commands ...string) string {
	return strings.Join(append(append([]string{"systemctl stop kubelet"}, commands...),
		"systemctl start kubelet"), " && ")
}

// places says where settings of a kubelet belong, in comments of the file.
const places = `# Settings of this node's kubelet for GPUs and VFs on one switch. Tandem writes no file of the kubelet: the
# settings belong where the kubelet's configuration comes from:
#   folder of drop-ins     %s
#   kubeadm                the ConfigMap kubelet-config in kube-system, then on the node: kubeadm upgrade node phase kubelet-config
#   Ansible and others     the template of %s, or a file in the folder of drop-ins
#   machine configuration  OpenShift's KubeletConfig, Talos' machine.kubelet.extraConfig
#   managed Kubernetes     the node pool's settings or user data: docs/providers.md
# Then, on the drained node: tandem doctor; systemctl stop kubelet; remove the state file that it names; systemctl start kubelet.
`

// withoutFolder says how a kubelet gets a folder of drop-ins.
const withoutFolder = `the kubelet has none; with Kubernetes 1.30 or later and kubeadm:
#                          KUBELET_EXTRA_ARGS=--config-dir=/etc/kubernetes/kubelet.conf.d
#                          in /etc/default/kubelet or /etc/sysconfig/kubelet`

// ReadDropIn reads the machine and the mode of the node, and returns what [Kubelet.DropIn] returns.
func (n *Node) ReadDropIn(ctx context.Context, staticCPUs bool) (string, error) {
	if _, err := n.readMachine(ctx); err != nil {
		return "", err
	}
	return n.DropIn(staticCPUs)
}

// DropIn returns the settings that Tandem needs on this node as a file of the kubelet: those of
// deployments/kubelet/config.yaml, with as many NUMA nodes as the machine has and, on request, CPUs for
// containers alone. Comments say where the settings belong.
func (k Kubelet) DropIn(staticCPUs bool) (string, error) {
	if k.Mode == coordination.DRA {
		return "", errors.New("print settings: this node is in DRA mode, in which the kubelet's managers align " +
			"no devices, and needs none")
	}
	p, err := k.findProcess()
	if err != nil {
		return "", err
	}
	f, err := k.Read(p)
	if err != nil {
		return "", fmt.Errorf("read the kubelet's configuration: %w; %s", err, otherConfig)
	}
	if cgroup := f.SystemReservedCgroup + f.KubeReservedCgroup; staticCPUs && !f.HasReserved() && cgroup != "" {
		return "", fmt.Errorf("print settings: the kubelet has the cgroup %s and does not start with named CPUs: "+
			"first reserve an amount of CPU in systemReserved or kubeReserved", cgroup)
	}
	folder := withoutFolder
	if f.At.Dir != "" {
		folder = "save this text elsewhere, and move it to " + filepath.Join(f.At.Dir, "tandem.conf") +
			"; later names override earlier ones"
	}
	var b strings.Builder
	fmt.Fprintf(&b, places, folder, cmp.Or(f.At.Config, "the kubelet's command line"))
	for _, line := range earlierDropIn(f.At) {
		fmt.Fprintf(&b, "# %s\n", line)
	}
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\n", kubelet.ConfigVersion, kubelet.ConfigKind)
	fmt.Fprintf(&b, "topologyManagerPolicy: %s\ntopologyManagerScope: %s\ntopologyManagerPolicyOptions:\n",
		restricted, scopeContainer)
	fmt.Fprintf(&b, "  %s: \"true\"\n", preferClosest)
	if f.NUMANodes > f.AllowedNodes() {
		fmt.Fprintf(&b, "  %s: \"%d\" # Kubernetes 1.31 or later\n", maxNodesOption, f.NUMANodes)
	}
	if staticCPUs {
		fmt.Fprintf(&b, "cpuManagerPolicy: %s\n", static)
		if !f.HasReserved() {
			fmt.Fprintf(&b, "reservedSystemCPUs: \"%s\"\n", f.FirstCPUs())
		}
	}
	return machine.OnNode(p.Root, b.String()), nil
}

// findProcess finds the kubelet's process. With a folder of drop-ins that a flag names, none is no error.
func (k Kubelet) findProcess() (machine.Process, error) {
	p, err := machine.FindProcess(k.ProcRoot)
	if k.ConfigDir != "" {
		err = nil
	}
	return p, err
}

// earlier is the file that versions of Tandem before 0.1 wrote into the folder of drop-ins, and madeBy the
// beginning of its first line. A file without that line is another owner's.
const (
	earlier = "99-tandem.conf"
	madeBy  = "# Made by tandem doctor --fix-kubelet."
)

// earlierDropIn returns remarks about a file of settings that an earlier Tandem wrote, nil for none.
func earlierDropIn(at kubelet.ConfigFiles) []string {
	file := filepath.Join(at.Dir, earlier)
	content, err := os.ReadFile(file)
	if at.Dir == "" || err != nil || !bytes.HasPrefix(content, []byte(madeBy)) {
		return nil
	}
	return []string{
		file + " is of an earlier Tandem, and no longer kept up to date.",
		"To remove it from the drained node: rm -f " + file + " " + file + ".before, then tandem doctor; " +
			"systemctl stop kubelet; remove the state file that it names; systemctl start kubelet.",
	}
}
