// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/test/golden"
)

const plainKubelet = `# of the cloud
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
topologyManagerPolicy: none # for now
kubeReserved: {cpu: 500m}
`

// succeeds runs tandem doctor and returns its output.
func (s *sick) succeeds(args ...string) string {
	s.t.Helper()
	return strings.ReplaceAll(succeed(s.t, s.command(args...)...), s.root, "ROOT")
}

// files are all files of the node and their content.
func (s *sick) files() map[string]string {
	s.t.Helper()
	files := map[string]string{}
	s.check(filepath.WalkDir(s.root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name)
		files[name] = string(content)
		return err
	}))
	return files
}

// unfixed is a node with an unconfigured kubelet that has a folder of drop-ins.
func unfixed(t *testing.T, flags ...string) *sick {
	t.Helper()
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
	s.write("kubelet/config.yaml", plainKubelet)
	s.cpuState("none", "")
	s.check(os.Mkdir(s.path("kubelet.d"), 0o755))
	s.process("7", append([]string{
		"kubelet", "--config=" + s.path("kubelet/config.yaml"), "--config-dir", s.path("kubelet.d"),
	}, flags...)...)
	return s
}

// TestDropIn: what is printed are the settings of deployments/kubelet/config.yaml. Nothing on the node
// changes, and with the file in place nothing is wrong with the kubelet but its CPU manager.
func TestDropIn(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	before := s.files()
	printed := s.succeeds("--drop-in")
	if diff := cmp.Diff(before, s.files()); diff != "" {
		t.Errorf("tandem doctor changed something (-before +after):\n%s", diff)
	}
	shipped, err := os.ReadFile("../../deployments/kubelet/config.yaml")
	s.check(err)
	if diff := cmp.Diff(object(t, string(shipped)), object(t, printed)); diff != "" {
		t.Errorf("deployments/kubelet/config.yaml and the drop-in differ (-shipped +printed):\n%s", diff)
	}
	s.write("kubelet.d/tandem.conf", printed)
	check(t, s.findings(), "cpu-manager", "none")
}

func object(t *testing.T, content string) (o map[string]any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(content), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestDropInStaticCPUs: with the printed settings, and without the state of the other policy, which doctor
// names, the kubelet starts.
func TestDropInStaticCPUs(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.manyNodes()
	s.write("kubelet.d/tandem.conf", s.succeeds("--drop-in", "--static-cpus"))
	check(t, s.findings(), "cpu-state", "policyName none")
	s.remove("kubelet/cpu_manager_state")
	if found := s.findings(); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
}

// manyNodes gives an unconfigured kubelet nine NUMA nodes.
func (s *sick) manyNodes() {
	s.write("kubelet/config.yaml", kubeletKind)
	s.write("sys/devices/system/node/online", "0-8\n")
}

// another adds a second kubelet.
func (s *sick) another() {
	s.process("8", "kubelet", "--config="+s.path("tenant/c"), "--config-dir="+s.path("tenant"))
}

// itsRoot lays out a kubelet whose files doctor, in a mount namespace of its own, finds below /proc/PID/root.
func (s *sick) itsRoot() {
	s.process("7", "kubelet", "--config=/etc/kubelet.yaml", "--config-dir=/etc/kubelet.d")
	s.namespace("proc/self", "mnt:[2]")
	s.write("proc/7/root/etc/kubelet.yaml", plainKubelet)
	s.write("proc/7/root/etc/kubelet.d/10-cpus.conf",
		kubeletKind+"topologyManagerPolicy: restricted\ncpuManagerPolicy: static\n")
}

// withoutFile lays out a kubelet without a configuration flag, which reads no file, even at the usual path.
func (s *sick) withoutFile() {
	s.write("kubelet/config.yaml", healthyKubelet)
	s.process("7", "kubelet", "--kube-reserved=cpu=1")
}

// TestDropIns: what --drop-in prints for kubelets of all kinds, and doctor itself where flags is "". An error
// comes without a text on standard output, which may go into a file of the kubelet.
func TestDropIns(t *testing.T) {
	t.Parallel()
	const dropIn, static = "--drop-in", "--drop-in --static-cpus"
	var all strings.Builder
	for _, c := range []struct {
		name, flags string
		seed        func(s *sick)
	}{
		{"plain", dropIn, func(*sick) {}},
		// as a shell does for ">"
		{"the file is empty", dropIn, func(s *sick) { s.write("kubelet.d/tandem.conf", "") }},
		{"static CPUs", static, (*sick).manyNodes},
		{"static CPUs, kubeReserved", static, func(*sick) {}},
		{"static CPUs, a cgroup", static, func(s *sick) {
			s.write("kubelet/config.yaml", kubeletKind+"systemReservedCgroup: /system.slice\n")
		}},
		{"no folder of drop-ins", dropIn, func(s *sick) {
			s.process("7", "kubelet", "--config", s.path("kubelet/config.yaml"))
		}},
		{"another kind", dropIn, func(s *sick) {
			s.write("kubelet/config.yaml", "kind: KubeProxyConfiguration\n")
		}},
		{"no file", dropIn, func(s *sick) { s.remove("kubelet/config.yaml") }},
		{"no flags", dropIn, (*sick).withoutFile},
		{"no flags", "", (*sick).withoutFile},
		{"two kubelets", dropIn, (*sick).another},
		{"a kubelet and a user's process of that name", dropIn, func(s *sick) {
			s.another()
			s.write("proc/8/status", "Uid:\t0\t0\t0\t65534\n")
		}},
		{"DRA", dropIn, func(s *sick) { s.enter(coordination.DRA, "run") }},
		{"static CPUs alone", "--static-cpus", func(*sick) {}},
		{"wrong CPUs", "--cpus -1", func(*sick) {}},
		{"through its root", dropIn, (*sick).itsRoot},
		{"through its root", "", (*sick).itsRoot},
	} {
		s := unfixed(t)
		c.seed(s)
		code, stdout, stderr := run(s.command(strings.Fields(c.flags)...)...)
		fmt.Fprintf(&all, "== %s: %s: exit code %d\n%s%s\n",
			c.name, strings.TrimSpace("tandem doctor "+c.flags), code, s.anywhere(stdout), s.anywhere(stderr))
	}
	golden.Check(t, "testdata/doctor-drop-in.txt", all.String())
}
