// SPDX-License-Identifier: Apache-2.0

package managers

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/mode"
)

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

// DropIn returns the settings that Tandem needs on this node as a file of the kubelet: those of
// deployments/kubelet/config.yaml, with as many NUMA nodes as the machine has and, on request, CPUs for
// containers alone. Comments say where the settings belong.
func (k Kubelet) DropIn(staticCPUs bool) (string, error) {
	if k.Mode == mode.DRA {
		return "", errors.New("print settings: this node is in DRA mode, in which the kubelet's managers align " +
			"no devices, and needs none")
	}
	p, err := k.process()
	if err != nil {
		return "", err
	}
	f, err := k.Read(p)
	if err != nil {
		return "", fmt.Errorf("read the kubelet's configuration: %w; %s", err, OtherConfig)
	}
	if cgroup := f.SystemReservedCgroup + f.KubeReservedCgroup; staticCPUs && !f.Reserves() && cgroup != "" {
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
	for _, line := range EarlierDropIn(f.At) {
		fmt.Fprintf(&b, "# %s\n", line)
	}
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\n", kubelet.ConfigVersion, kubelet.ConfigKind)
	fmt.Fprintf(&b, "topologyManagerPolicy: %s\ntopologyManagerScope: %s\ntopologyManagerPolicyOptions:\n",
		Restricted, Container)
	fmt.Fprintf(&b, "  %s: \"true\"\n", preferClosest)
	if f.NUMANodes > f.AllowedNodes() {
		fmt.Fprintf(&b, "  %s: \"%d\" # Kubernetes 1.31 or later\n", MaxNodes, f.NUMANodes)
	}
	if staticCPUs {
		fmt.Fprintf(&b, "cpuManagerPolicy: %s\n", Static)
		if !f.Reserves() {
			fmt.Fprintf(&b, "reservedSystemCPUs: \"%s\"\n", f.FirstCPUs())
		}
	}
	return machine.OnNode(p.Root, b.String()), nil
}

// process finds the kubelet's process. With a folder of drop-ins that a flag names, none is no error.
func (k Kubelet) process() (machine.Process, error) {
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

// EarlierDropIn returns remarks about a file of settings that an earlier Tandem wrote, nil for none.
func EarlierDropIn(at kubelet.ConfigFiles) []string {
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
