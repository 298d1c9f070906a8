// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

// KubeletDir returns the root folder of the running kubelet, and the usual folder if the process is unknown,
// of which [unknownProcess] tells.
func KubeletDir(procRoot string) string {
	p, err := machine.FindProcess(procRoot)
	if err != nil {
		return kubelet.DefaultDir
	}
	return p.RootDir()
}

// kubeletReading is what was read of the kubelet's settings, once: a configuration that comes through a pipe
// cannot be read again.
type kubeletReading struct {
	ManagerSettings                   // without settings if these cannot be read
	process           machine.Process // the zero value if unknown: the files are in their usual place
	noProcess, unread error
}

// readSettings reads the kubelet's settings, at its first call.
func (n *Node) readSettings() kubeletReading {
	if n.settings == nil {
		r := kubeletReading{}
		r.process, r.noProcess = machine.FindProcess(n.ProcRoot)
		r.ManagerSettings, r.unread = n.Kubelet.Read(r.process)
		n.settings = &r
	}
	return *n.settings
}

// kubeletFacts are the kubelet's settings, and what is to be said of them.
type kubeletFacts struct {
	kubeletReading
	noFlags  bool      // the settings are those of the usual file, and no process tells of its flags
	config   string    // why the configuration cannot be read
	settings []Finding // of known settings and their state files, where the managers align devices
}

func (n Node) readKubelet(a *access) kubeletFacts {
	k := kubeletFacts{kubeletReading: n.readSettings()}
	err := k.unread
	var wrong *kubelet.ConfigError
	switch isFile := errors.As(err, &wrong); {
	case isFile && !a.denied(wrong.File, wrong.Err):
		k.config = (&kubelet.ConfigError{File: k.At.Shown(wrong.File), Err: wrong.Err}).Error()
	case !isFile && err != nil:
		k.config = err.Error()
	}
	if err != nil || n.Mode == coordination.DRA {
		return k
	}
	k.noFlags = k.process.PID == "" && n.Config == ""
	k.settings = append(judgeAll(k.ManagerSettings, ManagerSettings.Refusals, adviseSettings),
		k.staleStates(n.KubeletDir, a.denied)...)
	return k
}

func unknownProcess(k kubeletFacts) []Finding {
	if k.noProcess == nil {
		return nil
	}
	return []Finding{{
		ID: "kubelet-process", Severity: Unknown,
		Summary:  "The process of this node's kubelet cannot be identified.",
		Evidence: []string{k.noProcess.Error()},
		Why: "Any user can start a process with the name kubelet, so that its flags and files are not read; the " +
			"kubelet's files are read at their default paths.",
		Fix: []string{
			"run tandem doctor in the namespaces in which the kubelet runs",
			"name its files: --kubelet-config, --kubelet-config-dir",
		},
	}}
}

// remarks returns what the reader of findings has to know of the kubelet besides: settings that a command
// line may override, and an earlier drop-in.
func (k kubeletFacts) remarks() string {
	list := earlierDropIn(k.At)
	if k.noFlags {
		list = slices.Insert(list, 0, "No process of the kubelet is visible here, and its flags are unknown: the "+
			"settings are those of "+k.At.Config+" alone. On the node, as root, tandem doctor reads the flags as "+
			"well.")
	}
	return machine.OnNode(k.process.Root, strings.Join(list, " "))
}

func unreadConfig(k kubeletFacts) []Finding {
	return findWhen(k.config != "", Finding{
		ID: "kubelet-config", Severity: Unknown,
		Summary:  "The kubelet's configuration cannot be read.",
		Evidence: []string{k.config},
		Why:      "The configuration decides whether a container's GPUs and VFs come from the same NUMA nodes.",
		Fix:      []string{otherConfig},
	})
}

// Settings returns the kubelet's settings for a decision about hints, under the policy that doctor requires;
// the zero value for unknown ones.
func (n *Node) Settings() model.Kubelet {
	read := n.readSettings()
	if read.unread != nil {
		return model.Kubelet{}
	}
	known, err := read.Settings.Model()
	if err != nil {
		return model.Kubelet{}
	}
	known.TopologyManagerPolicy = restricted
	return known
}

// largestConfigMap is the limit of a ConfigMap's data (validation of core/v1 in Kubernetes).
const largestConfigMap = 1 << 20

// MountedConfig returns the configuration of VFs among the ConfigMaps that a kubelet has mounted for its
// pods, such as that of the SR-IOV network device plugin; "" for none that can be read. Of a ConfigMap with a
// key for each node, as that of the SR-IOV network operator, only the node's key counts. The error says that
// several differ.
func MountedConfig(kubeletDir, node string) (string, error) {
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

// mounted is a remark about the origin of the VFs; "" for none.
func mounted(config string) string {
	if config == "" {
		return ""
	}
	return "The VFs are those of a pod's ConfigMap, " + config + "."
}
