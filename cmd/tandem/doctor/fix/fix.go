// SPDX-License-Identifier: Apache-2.0

// Package fix writes the settings that a kubelet lacks into a file of Tandem's own in the kubelet's folder of
// drop-ins, and removes the file. It changes no file of another owner. Until the kubelet is well with a
// change, the content from before the change is next to the file, for [RollBack].
package fix

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/settings"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/mode"
)

// Change is a request to [Run].
type Change struct {
	Apply      bool // write the settings, besides showing them
	StaticCPUs bool // give guaranteed containers CPUs of their own
}

// Run shows the settings that the kubelet lacks and, on request, writes them into Tandem's file. If the
// kubelet has no folder of drop-ins, Run shows how the settings get to the kubelet, and applying them is an
// error.
func Run(out io.Writer, n managers.Kubelet, c Change) error {
	return fixer{out: out, node: n, open: settings.OpenFolder}.fix(c)
}

// RollBack removes Tandem's file. With last, RollBack undoes the last change only: Tandem's file has the
// content from before the change again.
func RollBack(out io.Writer, n managers.Kubelet, last bool) error {
	return fixer{out: out, node: n, open: settings.OpenFolder}.rollBack(last)
}

func (x fixer) fix(c Change) error {
	if x.node.Mode == mode.DRA {
		x.printf("This node is in DRA mode, in which the kubelet's managers align no devices: " +
			"the configuration needs no change.\n")
		return nil
	}
	p, err := x.node.Process()
	if err != nil {
		return err
	}
	x.root = p.Root
	now, err := x.node.Read(p, nil)
	if err != nil {
		return fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	if c.Apply {
		if err := x.settle(p, now); err != nil {
			return err
		}
	}
	own := ownFile(now.At)
	staticCPUs := c.StaticCPUs || own != "" && now.Origin("cpuManagerPolicy") == own
	if len(lacking(now, staticCPUs)) == 0 {
		x.printf("The configuration of the kubelet needs no change (%s).\n", now.Sources())
		if c.Apply {
			x.wayBack(now.At)
		}
		return x.finish(now, c.Apply, false)
	}
	content, after, err := x.plan(p, cmp.Or(own, "these settings"), staticCPUs)
	if err != nil {
		return err
	}
	if own == "" {
		return x.explain(now, after, content, c.Apply)
	}
	x.printf("%s:\n\n%s\n", own, content)
	x.remarks(after)
	if !c.Apply {
		x.printf("Nothing was changed. Drain the node, then: %s && systemctl restart kubelet\n", c.command())
		return nil
	}
	if err := x.change(after, content); err != nil {
		return err
	}
	x.printf("Wrote %s.\n", own)
	x.wayBack(after.At)
	return x.finish(after, true, true)
}

// plan returns Tandem's file, and the settings with the file in place. Settings that the kubelet refuses, and
// settings that still lack some, are an error.
func (x fixer) plan(
	p settings.Process, file string, staticCPUs bool,
) (content []byte, after managers.Facts, err error) {
	base, err := x.node.Read(p, settings.Overlay{file: nil})
	if err != nil {
		return nil, after, fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	content = dropIn(base, staticCPUs)
	if after, err = x.node.Read(p, settings.Overlay{file: content}); err != nil {
		return nil, after, fmt.Errorf("read the kubelet's configuration with %s: %w", file, err)
	}
	return content, after, accepted(after, file, staticCPUs)
}

// command returns the command that applies a change.
func (c Change) command() string {
	flags := ""
	if c.StaticCPUs {
		flags = " --static-cpus"
	}
	return "tandem doctor --fix-kubelet" + flags + " --apply"
}

// places returns flags for files in unusual places: a dead kubelet has no command line to read them from.
func (x fixer) places(at settings.Files) string {
	flags := " --kubelet-config-dir=" + at.Dir
	if at.Config != "" && at.Config != settings.Default(x.node.KubeletDir) {
		flags += " --kubelet-config=" + at.Config
	}
	if x.node.KubeletDir != kubelet.DefaultDir {
		flags += " --kubelet-dir=" + x.node.KubeletDir
	}
	return flags
}

// remarks prints consequences of the settings that are easily overlooked.
func (x fixer) remarks(after managers.Facts) {
	if after.CPUPolicy != managers.Static {
		kept := "the reserved CPUs"
		if !after.Reserves() {
			kept = after.FirstCPUs()
		}
		x.printf("The CPU settings stay unchanged: cpuManagerPolicy is %s. With --static-cpus, guaranteed "+
			"containers get exclusive CPUs on the NUMA nodes of their devices, and the system keeps %s.\n",
			after.CPUPolicy, kept)
	}
	if after.PolicyOptions[managers.MaxNodes] != "" {
		x.printf("The option %s requires Kubernetes 1.31 or later.\n", managers.MaxNodes)
	}
}

// explain shows the settings to the owner of the kubelet's configuration.
func (x fixer) explain(now, after managers.Facts, content []byte, apply bool) error {
	config := cmp.Or(now.At.Config, "its command line")
	x.printf("The kubelet has no folder of drop-ins (--config-dir), and Tandem does not change %s. "+
		"Add these settings:\n\n%s\n", config, bytes.TrimPrefix(content, []byte(madeBy)))
	x.remarks(after)
	x.printf(`Either give the kubelet such a folder (Kubernetes 1.30 or later) and run this command again; with kubeadm:
  mkdir -p /etc/kubernetes/kubelet.conf.d
  KUBELET_EXTRA_ARGS=--config-dir=/etc/kubernetes/kubelet.conf.d   in /etc/default/kubelet or /etc/sysconfig/kubelet
or add the settings where the file comes from:
  kubeadm              the ConfigMap kubelet-config in kube-system, then on the node: kubeadm upgrade node phase kubelet-config
  Ansible and others   the template of %s
  machine configuration  as Talos' machine.kubelet.extraConfig or OpenShift's KubeletConfig
Then, on the drained node: %s
`, config, managers.Restarted(x.removals(after)...))
	if apply {
		return errors.New(
			"change the kubelet's configuration: it has no folder of drop-ins, and nothing was changed")
	}
	return nil
}

// rollBack finds the folder on the command line of the running kubelet, or in a flag of doctor.
func (x fixer) rollBack(last bool) error {
	p, err := x.node.Process()
	if err != nil {
		return err
	}
	x.root = p.Root
	at := x.node.Files(p)
	if at.Dir == "" {
		return errors.New("roll back: the kubelet's folder of drop-ins is unknown: " +
			"set --kubelet-config-dir")
	}
	own, content := ownFile(at), []byte(nil)
	if last {
		if content, err = x.earlier(at.Dir); err != nil {
			return fmt.Errorf("roll back the last change: %w", err)
		}
	}
	after, unread := x.node.Read(p, settings.Overlay{own: content})
	changed := true
	switch err := x.replace(after, content); {
	case errors.Is(err, fs.ErrNotExist):
		x.printf("There is no %s.\n", own)
		after.Changed, changed = append(after.Changed, p.ChangedSince(x.node.Now, at.Dir)...), false
	case err != nil:
		return err
	case content == nil:
		x.printf("%s is gone.\n", own)
	default:
		x.printf("%s is as before the last change.\n", own)
	}
	if err := x.finish(after, true, changed); err != nil {
		return errors.Join(err, unread)
	}
	return errors.Join(x.forget(at.Dir), unread)
}
