// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// settings are the kubelet's settings, and the parts of the machine to which the settings refer, read once: a
// configuration that comes through a pipe cannot be read again.
type settings struct {
	kubelet.Settings  // without settings if these cannot be read
	At                kubelet.ConfigFiles
	NUMANodes         int
	CPUs              map[int]topology.CPUSet // by NUMA node
	Changed           []string                // files of the settings that are younger than the kubelet
	process           machine.Process         // the zero value if unknown: the files are in their usual place
	noProcess, unread error
}

// readSettings reads the kubelet's settings, at its first call.
func (n *Node) readSettings() *settings {
	if n.settings == nil {
		n.settings = &settings{}
		n.settings.process, n.settings.noProcess = machine.FindProcess(n.ProcRoot)
		n.settings.unread = n.settings.readFrom(n)
	}
	return n.settings
}

func (f *settings) readFrom(n *Node) (err error) {
	given := kubelet.ConfigFiles{Config: n.Config, Dir: n.ConfigDir}
	if n.ReadElsewhere != "" && n.Config != "" {
		given.Name = "configz of the kubelet of " + n.ReadElsewhere
	}
	f.At = f.process.Files(given, n.KubeletDir)
	f.Settings, err = kubelet.ReadSettings(f.At, f.process.Flags)
	if err != nil {
		return err
	}
	if n.Sys != nil {
		f.CPUs, err = topology.CPUs(n.Sys)
		if err != nil {
			return err
		}
	}
	if n.Tree != nil {
		f.NUMANodes = len(n.Tree.NUMANodes())
	}
	f.Changed = f.process.ChangedSince(n.Now, f.Files...)
	return nil
}

// reservedSet returns the CPUs that no container gets: the named ones or, of an amount, the lowest. Which
// CPUs the static policy takes of an amount depends on cores and sockets (takeByTopology in
// pkg/kubelet/cm/cpumanager): rely on their number on a NUMA node alone.
func (f *settings) reservedSet() (topology.CPUSet, error) {
	if f.ReservedCPUs != "" {
		return topology.ParseCPUSet(f.ReservedCPUs)
	}
	set, all := topology.CPUSet{}, f.allCPUs()
	amount, err := f.ReservedAmount()
	for n := 0; len(set) < amount && len(set) < len(all); n++ {
		if all[n] {
			set[n] = true
		}
	}
	return set, err
}

// hasReserved reports whether CPUs are reserved, by name or by amount. An amount that cannot be read is one
// for [Node.Refusals].
func (f *settings) hasReserved() bool {
	amount, err := f.ReservedAmount()
	return f.ReservedCPUs != "" || amount > 0 || err != nil
}

// allCPUs returns every CPU of the node.
func (f *settings) allCPUs() topology.CPUSet {
	all := topology.CPUSet{}
	for _, set := range f.CPUs {
		maps.Copy(all, set)
	}
	return all
}

// firstCPUs returns the first CPU of every NUMA node: those to reserve for the system.
func (f *settings) firstCPUs() string {
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

// allowedNodes returns the number of NUMA nodes that the kubelet allows (maxAllowableNUMANodes in
// pkg/kubelet/cm/topologymanager).
func (f *settings) allowedNodes() int {
	allowed, _ := strconv.Atoi(f.PolicyOptions[maxNodesOption]) // none is 0
	return max(model.MaxNodes, allowed)
}

// optionsSay returns the evidence for an option of the Topology Manager.
func (f *settings) optionsSay() string {
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

// configureSetting returns the way to a setting, and configureCPUs to exclusive CPUs.
func configureSetting(setting string) string {
	return "in the kubelet's configuration: " + setting + " (tandem doctor --drop-in prints all settings)"
}

func configureCPUs(setting string) string {
	return "in the kubelet's configuration: " + setting +
		" (tandem doctor --drop-in --static-cpus prints all settings)"
}

// restartAround returns a command between the end and the start of the kubelet.
func restartAround(command string) string {
	return "systemctl stop kubelet && " + command + " && systemctl start kubelet"
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

// ReadDropIn reads the machine and the mode of the node, and returns what [Node.DropIn] returns.
func (n *Node) ReadDropIn(ctx context.Context, staticCPUs bool) (string, error) {
	if _, err := n.readMachine(ctx); err != nil {
		return "", err
	}
	return n.DropIn(staticCPUs)
}

// DropIn returns the settings that Tandem needs on this node as a file of the kubelet: those of
// deployments/kubelet/config.yaml, with as many NUMA nodes as the machine has and, on request, CPUs for
// containers alone. Comments say where the settings belong. With a folder of drop-ins that a flag names, an
// unknown process is no error.
func (n *Node) DropIn(staticCPUs bool) (string, error) {
	f := n.readSettings()
	switch {
	case n.Mode == coordination.DRA:
		return "", errors.New("print settings: this node is in DRA mode, in which the kubelet's managers align " +
			"no devices, and needs none")
	case f.noProcess != nil && n.ConfigDir == "":
		return "", f.noProcess
	case f.unread != nil:
		return "", fmt.Errorf("read the kubelet's configuration: %w; %s", f.unread, otherConfig)
	}
	if cgroup := f.SystemReservedCgroup + f.KubeReservedCgroup; staticCPUs && !f.hasReserved() && cgroup != "" {
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
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\n", kubelet.ConfigVersion, kubelet.ConfigKind)
	fmt.Fprintf(&b, "topologyManagerPolicy: %s\ntopologyManagerScope: %s\ntopologyManagerPolicyOptions:\n",
		restricted, scopeContainer)
	fmt.Fprintf(&b, "  %s: \"true\"\n", preferClosest)
	if f.NUMANodes > f.allowedNodes() {
		fmt.Fprintf(&b, "  %s: \"%d\" # Kubernetes 1.31 or later\n", maxNodesOption, f.NUMANodes)
	}
	if staticCPUs {
		fmt.Fprintf(&b, "cpuManagerPolicy: %s\n", static)
		if !f.hasReserved() {
			fmt.Fprintf(&b, "reservedSystemCPUs: \"%s\"\n", f.firstCPUs())
		}
	}
	return f.process.OnNode(b.String()), nil
}

// remarkKubelet says that a command line may override settings, which this process cannot see.
func (n *Node) remarkKubelet() string {
	k := n.settings
	if k.unread != nil || k.process.PID != "" || n.Config != "" {
		return ""
	}
	return k.process.OnNode("No process of the kubelet is visible here, and its flags are unknown: the " +
		"settings are those of " + k.At.Config + " alone. On the node, as root, tandem doctor reads the flags as " +
		"well.")
}
