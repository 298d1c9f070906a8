// SPDX-License-Identifier: Apache-2.0

// Package managers judges a kubelet's settings as the kubelet's Topology, CPU and Memory Managers do. With a
// finding of [Refusals], or with one of [Facts.StaleStates], the kubelet does not start; with one of [Advice]
// the kubelet starts, and pods lose near pairs.
package managers

import (
	"fmt"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/mode"
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
	ConfigDir string    // folder with drop-ins; "" for the folder of the command line
	Now       time.Time // to compare the age of files with the age of the kubelet's process
	Mode      mode.Mode // of the node, "" for none; in the mode of DRA the managers align no devices
	// name of the node in a report for "kubectl tandem doctor", whose reader is not on the node and whose
	// Config is the kubelet's own answer; "" in a report on the node
	ReadElsewhere string
}

// Facts are the kubelet's settings, and the parts of the machine to which they refer.
type Facts struct {
	kubelet.Settings
	At        kubelet.ConfigFiles
	NUMANodes int
	CPUs      map[int]topology.CPUSet // by NUMA node
	Changed   []string                // files of the settings that are younger than the kubelet
}

// files returns where a process has the settings.
func (k Kubelet) files(p machine.Process) kubelet.ConfigFiles {
	given := kubelet.ConfigFiles{Config: k.Config, Dir: k.ConfigDir}
	if k.ReadElsewhere != "" && k.Config != "" {
		given.Name = "configz of the kubelet of " + k.ReadElsewhere
	}
	return p.Files(given, k.KubeletDir)
}

// Read reads the kubelet's settings.
func (k Kubelet) Read(p machine.Process) (f Facts, err error) {
	f.At = k.files(p)
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

// Reserved returns the CPUs that no container gets: the named ones or, of an amount, the lowest. Which CPUs
// the static policy takes of an amount depends on cores and sockets (takeByTopology in
// pkg/kubelet/cm/cpumanager): rely on their number on a NUMA node alone.
func (f Facts) Reserved() (topology.CPUSet, error) {
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

// Reserves reports whether CPUs are reserved, by name or by amount. An amount that cannot be read is one for
// [Refusals].
func (f Facts) Reserves() bool {
	amount, err := f.ReservedAmount()
	return f.ReservedCPUs != "" || amount > 0 || err != nil
}

// AllCPUs returns every CPU of the node.
func (f Facts) AllCPUs() topology.CPUSet {
	all := topology.CPUSet{}
	for _, set := range f.CPUs {
		maps.Copy(all, set)
	}
	return all
}

// FirstCPUs returns the first CPU of every NUMA node: those to reserve for the system.
func (f Facts) FirstCPUs() string {
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
	preferClosest = "prefer-closest-numa-nodes"
	MaxNodes      = "max-allowable-numa-nodes"
)

// AllowedNodes returns the number of NUMA nodes that the kubelet allows (maxAllowableNUMANodes in
// pkg/kubelet/cm/topologymanager).
func (f Facts) AllowedNodes() int {
	allowed, _ := strconv.Atoi(f.PolicyOptions[MaxNodes]) // none is 0
	return max(model.MaxNodes, allowed)
}

// optionsSay returns the evidence for an option of the Topology Manager.
func (f Facts) optionsSay() string {
	return f.Says("topologyManagerPolicyOptions", fmt.Sprint(f.PolicyOptions))
}

// The values that Tandem needs or advises.
const (
	Restricted = "restricted"
	Container  = "container"
	Static     = "static"
)

// OtherConfig is the remedy if the kubelet's configuration cannot be read.
const OtherConfig = "if the kubelet reads another file: tandem doctor --kubelet-config FILE " +
	"(ps -C kubelet -o args shows --config)"

// configure returns the way to a setting, and staticCPUs to exclusive CPUs.
func configure(setting string) string {
	return "in the kubelet's configuration: " + setting + " (tandem doctor --drop-in prints all settings)"
}

func staticCPUs(setting string) string {
	return "in the kubelet's configuration: " + setting +
		" (tandem doctor --drop-in --static-cpus prints all settings)"
}

// Restarted returns the commands with which a kubelet takes over a new configuration.
func Restarted(commands ...string) string {
	return strings.Join(append(append([]string{"systemctl stop kubelet"}, commands...),
		"systemctl start kubelet"), " && ")
}
