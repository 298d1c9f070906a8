// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/finding"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/settings"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
	"github.com/tandem-k8s/tandem/coordination/mode"
)

// DefaultConfig is where kubeadm puts the kubelet's configuration.
func DefaultConfig(kubeletDir string) string { return settings.Default(kubeletDir) }

// KubeletDir returns the root folder of the running kubelet, else the usual folder.
func KubeletDir(procRoot string) string {
	p, _ := settings.FindProcess(procRoot) // [unknownProcess] tells of an error
	return p.RootDir()
}

// kubeletFacts are the kubelet's settings, and the errors on the way to them.
type kubeletFacts struct {
	managers.Facts
	process string    // why no process is known to be the kubelet
	noFlags bool      // the settings are those of the usual file, and no process tells of its flags
	config  string    // why the configuration cannot be read
	stale   []Finding // of state files
	root    string    // prefix of the kubelet's paths, in another mount namespace
	judged  bool      // the settings are known, and the managers align devices
}

func (n Node) readKubelet(a *access) (k kubeletFacts) {
	p, err := settings.FindProcess(n.ProcRoot)
	if err != nil {
		k.process = err.Error()
	}
	k.root = p.Root
	k.Facts, err = n.Kubelet.Read(p)
	var wrong *configuration.FileError
	if errors.As(err, &wrong) && !a.denied(wrong.File, wrong.Err) {
		k.config = (&configuration.FileError{File: k.At.Shown(wrong.File), Err: wrong.Err}).Error()
	}
	if k.judged = k.Read && n.Mode != mode.DRA; !k.judged {
		return k
	}
	k.noFlags = p.PID == "" && n.Config == ""
	k.stale = k.StaleStates(n.KubeletDir, a.denied)
	return k
}

func unknownProcess(k kubeletFacts) []Finding {
	return finding.When(k.process != "", Finding{
		ID: "kubelet-process", Severity: Unknown,
		Summary:  "The process of this node's kubelet cannot be identified.",
		Evidence: []string{k.process},
		Why: "Any user can start a process with the name kubelet, so that its flags and files are not read; the " +
			"kubelet's files are read at their default paths.",
		Fix: []string{
			"run tandem doctor in the namespaces in which the kubelet runs",
			"name its files: --kubelet-config, --kubelet-config-dir",
		},
	})
}

// remarks returns what the reader of findings has to know of the kubelet besides.
func (k kubeletFacts) remarks() string {
	list := append([]string{unreadFlags(k)}, managers.EarlierDropIn(k.At)...)
	return strings.TrimSpace(settings.OnNode(k.root, strings.Join(list, " ")))
}

// unreadFlags is a remark about settings that a command line may override; else "".
func unreadFlags(k kubeletFacts) string {
	if !k.noFlags {
		return ""
	}
	return "No process of the kubelet is visible here, and its flags are unknown: the settings are those of " +
		k.At.Config + " alone. On the node, as root, tandem doctor reads the flags as well."
}

func unreadConfig(k kubeletFacts) []Finding {
	return finding.When(k.config != "", Finding{
		ID: "kubelet-config", Severity: Unknown,
		Summary:  "The kubelet's configuration cannot be read.",
		Evidence: []string{k.config},
		Why:      "The configuration decides whether a container's GPUs and VFs come from the same NUMA nodes.",
		Fix:      []string{managers.OtherConfig},
	})
}

// kubeletSettings judges known settings.
func kubeletSettings(k kubeletFacts) []Finding {
	if !k.judged {
		return nil
	}
	return slices.Concat(finding.Judge(k.Facts, managers.Refusals, managers.Advice), k.stale)
}
