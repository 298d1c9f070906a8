// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// kubeletReading is what was read of the kubelet's settings, once: a configuration that comes through a pipe
// cannot be read again.
type kubeletReading struct {
	ManagerSettings                   // without settings if these cannot be read
	process           machine.Process // the zero value if unknown: the files are in their usual place
	noProcess, unread error
}

// readSettings reads the kubelet's settings, at its first call.
func (n *Node) readSettings() *kubeletReading {
	if n.settings == nil {
		r := &kubeletReading{}
		r.process, r.noProcess = machine.FindProcess(n.ProcRoot)
		r.ManagerSettings, r.unread = n.Kubelet.Read(r.process)
		n.settings = r
	}
	return n.settings
}

// unknownProcess finds a kubelet whose process is unknown.
func unknownProcess(n *Node) []Finding {
	if n.settings.noProcess == nil {
		return nil
	}
	return []Finding{{
		ID: "kubelet-process", Severity: Unknown,
		Summary:  "The process of this node's kubelet cannot be identified.",
		Evidence: []string{n.settings.noProcess.Error()},
		Why: "Any user can start a process with the name kubelet, so that its flags and files are not read; the " +
			"kubelet's files are read at their default paths.",
		Fix: []string{
			"run tandem doctor in the namespaces in which the kubelet runs",
			"name its files: --kubelet-config, --kubelet-config-dir",
		},
	}}
}

// remarkKubelet returns what the reader of findings has to know of the kubelet besides: settings that a
// command line may override, and an earlier drop-in.
func (n *Node) remarkKubelet() string {
	k, list := n.settings, earlierDropIn(n.settings.At)
	if k.unread == nil && k.process.PID == "" && n.Config == "" {
		list = slices.Insert(list, 0, "No process of the kubelet is visible here, and its flags are unknown: the "+
			"settings are those of "+k.At.Config+" alone. On the node, as root, tandem doctor reads the flags as "+
			"well.")
	}
	return machine.OnNode(k.process.Root, strings.Join(list, " "))
}

// unreadConfig finds a configuration of the kubelet that cannot be read.
func unreadConfig(n *Node) []Finding {
	text, err := "", n.settings.unread
	var wrong *kubelet.ConfigError
	switch isFile := errors.As(err, &wrong); {
	case isFile && !n.noteDenied(wrong.File, wrong.Err):
		text = (&kubelet.ConfigError{File: n.settings.At.Shown(wrong.File), Err: wrong.Err}).Error()
	case !isFile && err != nil:
		text = err.Error()
	}
	return []Finding{{
		ID: "kubelet-config", Severity: Unknown,
		Summary:  "The kubelet's configuration cannot be read.",
		Evidence: evidenceOf(text),
		Why:      "The configuration decides whether a container's GPUs and VFs come from the same NUMA nodes.",
		Fix:      []string{otherConfig},
	}}
}
