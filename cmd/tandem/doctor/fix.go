// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/settings"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/mode"
)

// Change is what is asked of [Fix].
type Change struct {
	Apply      bool // else it is only shown
	StaticCPUs bool // give guaranteed containers CPUs of their own
}

// Fix shows which settings the kubelet lacks and, if they are to be applied, writes them into Tandem's file
// in the kubelet's folder of drop-ins. It changes no file that others own: without such a folder it shows the
// settings and how they get to the kubelet, and applying them is an error.
func Fix(out io.Writer, n Node, c Change) error {
	return fixer{out, n, settings.OpenFolder}.fix(c)
}

// RollBack removes that file.
func RollBack(out io.Writer, n Node) error {
	return fixer{out, n, settings.OpenFolder}.rollBack()
}

// fixer changes a node's kubelet.
type fixer struct {
	out  io.Writer
	node Node
	open func(path string) (settings.Folder, error)
}

func (x fixer) printf(format string, args ...any) { fmt.Fprintf(x.out, format, args...) }

func (x fixer) fix(c Change) error {
	if x.node.Mode == mode.DRA {
		x.printf("This node is in the mode of DRA, in which the kubelet's managers align no devices: " +
			"the configuration needs no change.\n")
		return nil
	}
	p, err := x.node.process()
	if err != nil {
		return err
	}
	now, err := x.node.facts(p, nil)
	if err != nil {
		return fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	own := now.ownFile()
	staticCPUs := c.StaticCPUs || own != "" && now.Origin("cpuManagerPolicy") == own
	if len(now.lacking(staticCPUs)) == 0 {
		x.printf("The configuration of the kubelet needs no change (%s).\n", now.Sources())
		return x.finish(now, c.Apply, false)
	}
	file := own
	if file == "" {
		file = "these settings"
	}
	base, err := x.node.facts(p, settings.Overlay{file: nil})
	if err != nil {
		return fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	content := dropIn(base, staticCPUs)
	after, err := x.node.facts(p, settings.Overlay{file: content})
	if err != nil {
		return fmt.Errorf("read the kubelet's configuration with %s: %w", file, err)
	}
	if err := after.accepted(file, staticCPUs); err != nil {
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
	if err := x.replace(after, content); err != nil {
		return err
	}
	x.printf("Changed: %s is Tandem's own file.\n", own)
	x.printf("The way back: tandem doctor --rollback-kubelet%s\n", x.places(after.at))
	return x.finish(after, true, true)
}

// command is that which applies a change.
func (c Change) command() string {
	flags := ""
	if c.StaticCPUs {
		flags = " --static-cpus"
	}
	return "tandem doctor --fix-kubelet" + flags + " --apply"
}

// places are the flags for what is not where it usually is: a kubelet that is dead does not tell.
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

// remarks say of settings what is easily overlooked.
func (x fixer) remarks(after facts) {
	if after.CPUPolicy != static {
		kept := "those that are reserved"
		if !after.reserves() {
			kept = after.firstCPUs()
		}
		x.printf("CPUs stay as they are: cpuManagerPolicy is %s. With --static-cpus guaranteed containers get "+
			"CPUs of their own, on the NUMA nodes of their devices, and the system keeps %s.\n",
			after.CPUPolicy, kept)
	}
	if after.PolicyOptions[maxNodes] != "" {
		x.printf("The option %s takes Kubernetes 1.31 or later.\n", maxNodes)
	}
}

// explain shows settings to those who own the kubelet's configuration.
func (x fixer) explain(now, after facts, content []byte, apply bool) error {
	config := cmp.Or(now.at.Config, "its command line")
	x.printf("The kubelet has no folder of drop-ins (--config-dir), and %s is not Tandem's to change. "+
		"These settings are missing there:\n\n%s\n", config, bytes.TrimPrefix(content, []byte(madeBy)))
	x.remarks(after)
	x.printf(`Either give the kubelet such a folder (Kubernetes 1.30 or later) and run this command again; with kubeadm:
  mkdir -p /etc/kubernetes/kubelet.conf.d
  KUBELET_EXTRA_ARGS=--config-dir=/etc/kubernetes/kubelet.conf.d   in /etc/default/kubelet or /etc/sysconfig/kubelet
or add the settings where the file comes from:
  kubeadm              the ConfigMap kubelet-config in kube-system, then on the node: kubeadm upgrade node phase kubelet-config
  Ansible and others   the template of %s
  machine configuration  as Talos' machine.kubelet.extraConfig or OpenShift's KubeletConfig
Then, on the drained node: %s
`, config, restarted(x.stalePaths(after)...))
	if apply {
		return errors.New(
			"change the kubelet's configuration: it has no folder of drop-ins, and nothing was changed")
	}
	return nil
}

func (x fixer) stalePaths(f facts) (commands []string) {
	stale, _ := f.staleStates(x.node.KubeletDir)
	for _, s := range stale {
		commands = append(commands, "rm "+s.path)
	}
	return commands
}

// rollBack knows the folder of a kubelet that runs, or by a flag.
func (x fixer) rollBack() error {
	p, err := x.node.process()
	if err != nil {
		return err
	}
	at := p.Files(settings.Files{Config: x.node.Config, Dir: x.node.ConfigDir}, x.node.KubeletDir)
	if at.Dir == "" {
		return errors.New("roll back: it is not known where the kubelet has its drop-ins: " +
			"name the folder (--kubelet-config-dir)")
	}
	own := filepath.Join(at.Dir, DropIn)
	after, unread := x.node.facts(p, settings.Overlay{own: nil})
	after.at = at
	switch err := x.replace(after, nil); {
	case errors.Is(err, fs.ErrNotExist):
		x.printf("There is no %s.\n", own)
	case err != nil:
		return err
	default:
		x.printf("%s is gone.\n", own)
		return errors.Join(x.finish(after, true, true), unread)
	}
	after.changed = append(after.changed, p.ChangedSince(x.node.Now, at.Dir)...)
	return errors.Join(x.finish(after, true, false), unread)
}
