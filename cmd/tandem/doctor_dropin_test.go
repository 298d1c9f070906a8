// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
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

// fails runs tandem doctor, which must end with this error and print nothing.
func (s *sick) fails(want string, args ...string) {
	s.t.Helper()
	code, stdout, stderr := run(s.command(args...)...)
	stderr = strings.ReplaceAll(stderr, s.root, "ROOT")
	if code != cli.ExitError || !strings.Contains(stderr, want) || stdout != "" {
		s.t.Errorf("%q: exit code %d, %q, %q, want %q", args, code, stdout, stderr, want)
	}
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
	golden.Check(t, "testdata/doctor-drop-in.txt", printed)
	if diff := cmp.Diff(before, s.files()); diff != "" {
		t.Errorf("tandem doctor changed something (-before +after):\n%s", diff)
	}
	shipped, err := os.ReadFile("../../deployments/kubelet/config.yaml")
	s.check(err)
	if diff := cmp.Diff(object(t, string(shipped)), object(t, printed)); diff != "" {
		t.Errorf("deployments/kubelet/config.yaml and the drop-in differ (-shipped +printed):\n%s", diff)
	}
	s.write("kubelet.d/tandem.conf", "") // as a shell does for ">"
	s.fails("ROOT/kubelet.d/tandem.conf: it is empty, and the kubelet does not start", "--drop-in")
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
	s.write("kubelet/config.yaml", kubeletKind)
	s.write("sys/devices/system/node/online", "0-8\n")
	printed := s.succeeds("--drop-in", "--static-cpus")
	want := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"topologyManagerPolicy": "restricted", "topologyManagerScope": "container",
		"topologyManagerPolicyOptions": map[string]any{
			"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "9",
		},
		"cpuManagerPolicy": "static", "reservedSystemCPUs": "0,56",
	}
	if diff := cmp.Diff(want, object(t, printed)); diff != "" {
		t.Errorf("(-want +printed):\n%s", diff)
	}
	s.write("kubelet.d/tandem.conf", printed)
	check(t, s.findings(), "cpu-state", "policyName none")
	s.remove("kubelet/cpu_manager_state")
	if found := s.findings(); len(found) > 0 {
		t.Errorf("found\n%s", doctor.Report(found))
	}
}

// TestDropInOfReservedCPUs: a kubelet that has reserved CPUs keeps them; one with a cgroup starts with no
// named CPUs.
func TestDropInOfReservedCPUs(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	if printed := s.succeeds("--drop-in", "--static-cpus"); strings.Contains(printed, "reservedSystemCPUs") {
		t.Errorf("the kubelet has kubeReserved:\n%s", printed)
	}
	s.write("kubelet/config.yaml", kubeletKind+"systemReservedCgroup: /system.slice\n")
	s.fails("first reserve an amount of CPU", "--drop-in", "--static-cpus")
}

// TestDropInWithoutFolder: the settings are printed, with the ways to such a folder.
func TestDropInWithoutFolder(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.process("7", "kubelet", "--config", s.path("kubelet/config.yaml"))
	printed := s.succeeds("--drop-in")
	for _, want := range []string{
		"the template of ROOT/kubelet/config.yaml",
		"\nkind: KubeletConfiguration\ntopologyManagerPolicy: restricted\n",
		"kubeadm upgrade node phase kubelet-config", "KUBELET_EXTRA_ARGS=--config-dir=",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is not in\n%s", want, printed)
		}
	}
}

// TestDropInOfNoSettings: errors come without a text on standard output, which may go into a file of the
// kubelet.
func TestDropInOfNoSettings(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.write("kubelet/config.yaml", "kind: KubeProxyConfiguration\n")
	s.fails("ROOT/kubelet/config.yaml: it is no KubeletConfiguration", "--drop-in")
	s.remove("kubelet/config.yaml")
	s.fails("config.yaml: no such file or directory", "--drop-in")
	s = unfixed(t)
	s.process("8", "kubelet", "--config="+s.path("tenant/c"), "--config-dir="+s.path("tenant"))
	s.fails("2 processes match", "--drop-in")
	s.write("proc/8/status", "Uid:\t0\t0\t0\t65534\n")
	if printed := s.succeeds("--drop-in"); !strings.Contains(printed, "ROOT/kubelet.d/tandem.conf") {
		t.Errorf("beside a user's process of that name:\n%s", printed)
	}
	s.check(os.Mkdir(s.path("run"), 0o700))
	leave, err := coordination.Enter(t.Context(), coordination.DRA, s.path("run"), t.TempDir())
	s.check(err)
	defer leave()
	s.fails("this node is in DRA mode", "--drop-in")
	if code, _, stderr := run(s.command("--static-cpus")...); code != cli.ExitUsage ||
		!strings.Contains(stderr, "--static-cpus belongs to --drop-in") {
		t.Errorf("--static-cpus alone: %d, %s", code, stderr)
	}
	if code, _, stderr := run(s.command("--cpus", "-1")...); code != cli.ExitUsage ||
		!strings.Contains(stderr, "want 0 or more") {
		t.Errorf("--cpus -1: %d, %s", code, stderr)
	}
}

// TestDropInThroughItsRoot: a doctor in its own mount namespace finds the kubelet's files below
// /proc/PID/root, and prints the paths of the node.
func TestDropInThroughItsRoot(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.process("7", "kubelet", "--config=/etc/kubelet.yaml", "--config-dir=/etc/kubelet.d")
	s.namespace("proc/self", "mnt:[2]")
	s.write("proc/7/root/etc/kubelet.yaml", plainKubelet)
	s.write("proc/7/root/etc/kubelet.d/99-tandem.conf", earlierDropIn)
	printed, report := s.succeeds("--drop-in"), s.report()
	if strings.Contains(printed+report, "proc/7") || !strings.Contains(printed, "/etc/kubelet.d/tandem.conf") ||
		!strings.Contains(report, "rm -f /etc/kubelet.d/99-tandem.conf ") {
		t.Errorf("printed:\n%s\nreport:\n%s", printed, report)
	}
}

// report returns the text of tandem doctor.
func (s *sick) report() string {
	s.t.Helper()
	_, stdout, _ := run(s.command()...)
	return strings.ReplaceAll(stdout, s.root, "ROOT")
}

const earlierDropIn = "# Made by tandem doctor --fix-kubelet. tandem doctor --rollback-kubelet removes it.\n" +
	kubeletKind + "topologyManagerPolicy: restricted\ncpuManagerPolicy: static\n"

// TestEarlierDropIn: doctor names the file of an earlier Tandem and its removal, and judges its settings. A
// file of that name without Tandem's first line is another owner's.
func TestEarlierDropIn(t *testing.T) {
	t.Parallel()
	const removal = "rm -f ROOT/kubelet.d/99-tandem.conf ROOT/kubelet.d/99-tandem.conf.before, "
	for content, want := range map[string]bool{earlierDropIn: true, kubeletKind: false} {
		s := unfixed(t)
		s.write("kubelet.d/99-tandem.conf", content)
		for _, told := range []string{s.succeeds("--drop-in"), s.report()} {
			if strings.Contains(told, removal) != want {
				t.Errorf("file:\n%s\ntold:\n%s", content, told)
			}
		}
		stale := slices.ContainsFunc(s.findings(), func(f doctor.Finding) bool { return f.ID == "cpu-state" })
		if stale != want {
			t.Errorf("file:\n%s\nits policy counts: %t", content, stale)
		}
	}
}

// TestKubeletWithoutFile: a kubelet without a configuration flag reads no file, even at the usual path.
func TestKubeletWithoutFile(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.write("kubelet/config.yaml", healthyKubelet)
	s.process("7", "kubelet", "--kube-reserved=cpu=1")
	if shown := s.succeeds("--drop-in"); !strings.Contains(shown,
		"the template of the kubelet's command line") ||
		!strings.Contains(shown, "topologyManagerPolicy: restricted\n") {
		t.Errorf("shown:\n%s", shown)
	}
	for _, f := range s.findings() {
		if f.ID == "topology-policy" && strings.HasPrefix(f.Evidence[0], "the kubelet's command line: ") {
			return
		}
	}
	t.Errorf("findings: %+v", s.findings())
}
