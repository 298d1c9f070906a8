// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/fix"
	"github.com/tandem-k8s/tandem/coordination/mode"
)

const plainKubelet = `# of the cloud
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
topologyManagerPolicy: none # for now
kubeReserved: {cpu: 500m}
`

// dropIn is Tandem's file on the nodes of these tests.
const dropIn = "kubelet.d/" + fix.DropIn

func (s *sick) read(name string) string {
	s.t.Helper()
	content, err := os.ReadFile(s.path(name))
	s.check(err)
	return string(content)
}

func (s *sick) has(name string) bool {
	_, err := os.Lstat(s.path(name))
	return err == nil
}

// succeeds runs tandem doctor and returns its output.
func (s *sick) succeeds(args ...string) string {
	s.t.Helper()
	return strings.ReplaceAll(succeed(s.t, s.command(args...)...), s.root, "ROOT")
}

// fails runs tandem doctor, which must end with this error without changes below the kubelet's folders.
func (s *sick) fails(want string, args ...string) {
	s.t.Helper()
	before := s.files()
	code, _, stderr := run(s.command(args...)...)
	stderr = strings.ReplaceAll(stderr, s.root, "ROOT")
	if code != exitError || !strings.Contains(stderr, want) {
		s.t.Errorf("%q: exit code %d, %q, want %q", args, code, stderr, want)
	}
	if diff := cmp.Diff(before, s.files()); diff != "" {
		s.t.Errorf("%q changed files (-before +after):\n%s", args, diff)
	}
}

// files are the kubelet's, with their content.
func (s *sick) files() map[string]string {
	s.t.Helper()
	files := map[string]string{}
	for _, dir := range []string{"kubelet", "kubelet.d"} {
		entries, err := os.ReadDir(s.path(dir))
		if !errors.Is(err, os.ErrNotExist) {
			s.check(err)
		}
		for _, entry := range entries {
			if name := dir + "/" + entry.Name(); entry.Type().IsRegular() {
				files[name] = s.read(name)
			}
		}
	}
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

// starts reports whether tandem doctor finds nothing that would prevent the kubelet's start.
func (s *sick) starts() bool {
	s.t.Helper()
	for _, f := range s.findings() {
		if strings.Contains(f.Why, "not start") || strings.Contains(f.Why, "refuses to") {
			s.t.Logf("%s: %s", f.ID, f.Summary)
			return false
		}
	}
	return true
}

// TestFixKubelet: only Tandem's file is added, equal to deployments/kubelet/config.yaml, and removed again.
func TestFixKubelet(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	before := s.files()
	golden(t, "doctor-fix.txt", s.succeeds("--fix-kubelet"))
	if diff := cmp.Diff(before, s.files()); diff != "" {
		t.Errorf("a dry run changed something (-before +after):\n%s", diff)
	}
	if applied := s.succeeds("--fix-kubelet", "--apply"); !strings.Contains(applied,
		"To undo the change: tandem doctor --rollback-kubelet --kubelet-config-dir=ROOT/kubelet.d "+
			"--kubelet-dir=ROOT/kubelet\n") ||
		!strings.HasSuffix(applied, "Now: systemctl restart kubelet\n") || strings.Contains(applied, "Removed") {
		t.Errorf("told:\n%s", applied)
	}
	shipped, err := os.ReadFile("../../deployments/kubelet/config.yaml")
	s.check(err)
	if diff := cmp.Diff(object(t, string(shipped)), object(t, s.read(dropIn))); diff != "" {
		t.Errorf("deployments/kubelet/config.yaml and the file differ (-shipped +written):\n%s", diff)
	}
	if again := s.succeeds("--fix-kubelet", "--apply"); !strings.Contains(again, "needs no change") ||
		strings.Contains(again, "Now:") {
		t.Errorf("applied twice:\n%s", again)
	}
	check(t, s.findings(), "cpu-manager", "none")
	if back := s.succeeds("--rollback-kubelet"); !strings.Contains(back, "ROOT/"+dropIn+" is gone.\n") {
		t.Errorf("told:\n%s", back)
	}
	if diff := cmp.Diff(before, s.files()); diff != "" {
		t.Errorf("rolled back (-before +after):\n%s", diff)
	}
	s.write(dropIn+".new", "apiVer") // left by a killed run
	if again := s.succeeds("--rollback-kubelet"); again != "There is no ROOT/"+dropIn+".\n" ||
		s.has(dropIn+".new") {
		t.Errorf("rolled back twice:\n%s", again)
	}
}

func object(t *testing.T, content string) (o map[string]any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(content), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestFixKubeletStaticCPUs: static CPUs are optional, persistent, and remove the state of the other policy.
func TestFixKubeletStaticCPUs(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.write("kubelet/config.yaml", kubeletKind)
	args := []string{"--fix-kubelet", "--static-cpus", "--apply"}
	if shown := s.succeeds(args[:2]...); !strings.Contains(shown,
		"cpuManagerPolicy: static\nreservedSystemCPUs: \"0,56\"\n") ||
		!strings.Contains(shown, "tandem doctor --fix-kubelet --static-cpus --apply") {
		t.Errorf("shown:\n%s", shown)
	}
	if applied := s.succeeds(args...); !strings.Contains(applied, "Removed ROOT/kubelet/cpu_manager_state") ||
		s.has("kubelet/cpu_manager_state") {
		t.Errorf("told:\n%s", applied)
	}
	s.cpuState("static", s.allCPUs())
	if again := s.succeeds("--fix-kubelet", "--apply"); !strings.Contains(again, "needs no change") {
		t.Errorf("once more, without the flag:\n%s", again)
	}
	s.write("sys/devices/system/node/online", "0-8\n") // the file is made anew
	s.succeeds("--fix-kubelet", "--apply")
	if content := s.read(dropIn); !strings.Contains(content, "max-allowable-numa-nodes: \"9\"") ||
		!strings.Contains(content, "cpuManagerPolicy: static\nreservedSystemCPUs: \"0,56\"\n") || !s.starts() {
		t.Errorf("with nine NUMA nodes:\n%s", content)
	}
	if back := s.succeeds("--rollback-kubelet"); !strings.Contains(back,
		"Removed ROOT/kubelet/cpu_manager_state") ||
		s.has(dropIn) {
		t.Errorf("told:\n%s", back)
	}
}

// TestFixKubeletFinishes: the next run completes an interrupted one, and reports a kubelet that was not
// restarted.
func TestFixKubeletFinishes(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.succeeds("--fix-kubelet", "--apply", "--static-cpus")
	s.cpuState("none", "") // as if it had not been removed
	s.write("proc/uptime", "7205.00 1.00\n")
	if shown := s.succeeds("--fix-kubelet"); !strings.Contains(shown,
		"does not use its new configuration yet") ||
		!strings.Contains(shown, "rm ROOT/kubelet/cpu_manager_state") || !s.has("kubelet/cpu_manager_state") {
		t.Errorf("shown:\n%s", shown)
	}
	if applied := s.succeeds("--fix-kubelet", "--apply"); !strings.Contains(applied, "needs no change") ||
		!strings.Contains(applied, "Removed ROOT/kubelet/cpu_manager_state") ||
		!strings.HasSuffix(applied, "Now: systemctl restart kubelet\n") || !s.starts() {
		t.Errorf("applied again:\n%s", applied)
	}
	if applied := s.succeeds("--fix-kubelet", "--apply"); !strings.HasSuffix(applied,
		"Now: systemctl restart kubelet\n") {
		t.Errorf("the kubelet still runs with the old settings:\n%s", applied)
	}
	s.succeeds("--rollback-kubelet")
	if back := s.succeeds("--rollback-kubelet"); !strings.HasSuffix(back, "Now: systemctl restart kubelet\n") {
		t.Errorf("rolled back, and the kubelet still runs with the new settings:\n%s", back)
	}
}

// TestFixKubeletWithoutFolder: the settings are printed, and nothing is written.
func TestFixKubeletWithoutFolder(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.process("7", "kubelet", "--config", s.path("kubelet/config.yaml"))
	shown := s.succeeds("--fix-kubelet", "--static-cpus")
	for _, want := range []string{
		"Tandem does not change ROOT/kubelet/config.yaml",
		"\nkind: KubeletConfiguration\ntopologyManagerPolicy: restricted\n",
		"kubeadm upgrade node phase kubelet-config", "KUBELET_EXTRA_ARGS=--config-dir=",
		"systemctl stop kubelet && rm ROOT/kubelet/cpu_manager_state && systemctl start kubelet\n",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in\n%s", want, shown)
		}
	}
	s.fails("no folder of drop-ins, and nothing was changed", "--fix-kubelet", "--apply")
	s.fails("set --kubelet-config-dir", "--rollback-kubelet")
	s.write("kubelet/config.yaml", healthyKubelet)
	s.cpuState("static", s.allCPUs())
	if applied := s.succeeds("--fix-kubelet", "--apply"); !strings.Contains(applied, "needs no change") {
		t.Errorf("a kubelet that has all settings:\n%s", applied)
	}
}

// TestFixKubeletManyNodes: with more than eight NUMA nodes the policy needs an additional option.
func TestFixKubeletManyNodes(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.write("sys/devices/system/node/online", "0-33\n")
	if applied := s.succeeds("--fix-kubelet", "--apply"); !strings.Contains(applied,
		"requires Kubernetes 1.31 or later") ||
		!strings.Contains(s.read(dropIn), "max-allowable-numa-nodes: \"34\"\n") || !s.starts() {
		t.Errorf("%s\n%s", applied, s.read(dropIn))
	}
	s = unfixed(t, "--topology-manager-policy-options=prefer-closest-numa-nodes=true")
	s.write("sys/devices/system/node/online", "0-33\n")
	s.fails("the kubelet allows 8", "--fix-kubelet", "--apply")
}

// TestFixKubeletInDRA: in DRA mode the kubelet's managers align nothing.
func TestFixKubeletInDRA(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.check(os.Mkdir(s.path("run"), 0o700))
	leave, err := mode.Enter(mode.DRA, s.path("run"))
	s.check(err)
	defer leave()
	if applied := s.succeeds("--fix-kubelet", "--apply"); !strings.Contains(applied, "needs no change") ||
		s.has(dropIn) {
		t.Errorf("told:\n%s", applied)
	}
}

func TestFixKubeletUsage(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	for want, args := range map[string][]string{
		"belong to --fix-kubelet": {"--apply"}, "--static-cpus belong": {"--static-cpus", "--rollback-kubelet"},
		"exclude each other": {"--fix-kubelet", "--rollback-kubelet"}, "want 0 or more": {"--cpus", "-1"},
		"--last belongs to --rollback-kubelet": {"--last"},
	} {
		if code, _, stderr := run(s.command(args...)...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d; %q, want %q", args, code, stderr, want)
		}
	}
}

// TestFixKubeletRefuses: nothing is written that would prevent the kubelet's start, that would have no
// effect, or whose path others than root control.
func TestFixKubeletRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		seed func(s *sick)
		want string
		args []string
	}{
		{"a flag stands above", func(s *sick) {
			s.process("7", "kubelet", "--config-dir="+s.path("kubelet.d"), "--topology-manager-policy", "none")
		}, "topologyManagerPolicy is set by the kubelet's flag --topology-manager-policy, which overrides", nil},
		{"a drop-in stands above", func(s *sick) {
			s.write("kubelet.d/99-zone.conf", kubeletKind+"topologyManagerPolicy: none\n")
		}, "topologyManagerPolicy is set by ROOT/kubelet.d/99-zone.conf, which overrides ROOT/" + dropIn, nil},
		{"named CPUs beside a cgroup", func(s *sick) {
			s.write("kubelet/config.yaml", kubeletKind+"systemReservedCgroup: /system.slice\n")
		}, "reservedSystemCPUs together with systemReservedCgroup", []string{"--static-cpus"}},
		{"an option that there is not", func(s *sick) {
			s.write("kubelet.d/10.conf", kubeletKind+"topologyManagerPolicyOptions: {near: \"true\"}\n")
		}, "there is no such option", nil},
		{"somebody else's file of that name", func(s *sick) {
			s.write(dropIn, kubeletKind+"maxPods: 42\n")
		}, "ROOT/" + dropIn + " was not written by Tandem", nil},
		{"a link of that name", func(s *sick) {
			s.write("kubelet/secret", kubeletKind)
			s.check(os.Symlink(s.path("kubelet/secret"), s.path(dropIn)))
		}, "it is a link", nil},
		{"the folder is a link", func(s *sick) {
			s.check(os.Mkdir(s.path("elsewhere"), 0o755))
			s.check(os.Symlink(s.path("elsewhere"), s.path("link")))
			s.process("7", "kubelet", "--config-dir="+s.path("link"))
		}, "ROOT/link: the folder is a symbolic link", nil},
		{"others can write to the folder", func(s *sick) { s.check(os.Chmod(s.path("kubelet.d"), 0o777)) },
			"ROOT/kubelet.d: users other than root can write to the file", nil},
		{"others can write to a folder above", func(s *sick) { s.check(os.Chmod(s.root, 0o757)) },
			"ROOT: users other than root can write to the file", nil},
		{"the state cannot be removed", func(s *sick) {
			s.remove("kubelet/cpu_manager_state")
			s.check(os.MkdirAll(s.path("kubelet/cpu_manager_state/x"), 0o755))
		}, "remove stale state", nil},
		{"no configuration", func(s *sick) { s.remove("kubelet/config.yaml") },
			"config.yaml: no such file or directory", nil},
		{"no configuration, and a drop-in", func(s *sick) {
			s.remove("kubelet/config.yaml")
			s.write("kubelet.d/10.conf", kubeletKind+"maxPods: 42\n")
		}, "config.yaml: no such file or directory", nil},
		{"a drop-in that leads nowhere", func(s *sick) {
			s.check(os.Symlink(s.path("nowhere"), s.path("kubelet.d/10.conf")))
		}, "kubelet.d/10.conf: no such file or directory", nil},
		{"somebody else's configuration", func(s *sick) {
			s.write("kubelet/config.yaml", "kind: KubeProxyConfiguration\n")
		}, "ROOT/kubelet/config.yaml: it is no KubeletConfiguration", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := unfixed(t)
			test.seed(s)
			s.fails(test.want, append([]string{"--fix-kubelet", "--apply"}, test.args...)...)
		})
	}
}

// TestFixKubeletTrusts: a process other than the node's kubelet does not influence the paths, whatever its
// name.
func TestFixKubeletTrusts(t *testing.T) {
	t.Parallel()
	impostor := func(s *sick, pid string) {
		s.check(os.MkdirAll(s.path("tenant"), 0o755))
		s.process(pid, "kubelet", "--config="+s.path("tenant/c"), "--config-dir="+s.path("tenant"))
		s.write("tenant/c", kubeletKind)
	}
	for _, test := range []struct {
		name string
		seed func(s *sick)
		want string // "" if the kubelet is recognized
	}{
		{"two kubelets", func(s *sick) { impostor(s, "8") }, "2 processes match"},
		{"a user's, beside the kubelet", func(s *sick) {
			impostor(s, "8")
			s.write("proc/8/status", "Uid:\t0\t0\t0\t65534\n")
		}, ""},
		{"a container's, beside the kubelet", func(s *sick) {
			impostor(s, "8")
			s.namespace("proc/8", "mnt:[2]")
		}, ""},
		{"a user's alone", func(s *sick) {
			impostor(s, "7")
			s.write("proc/7/status", "Uid:\t65534\t65534\t65534\t65534\n")
		}, "process 7 has the name kubelet, but it is not root's"},
		{"a container's alone", func(s *sick) {
			impostor(s, "7")
			s.namespace("proc/7", "mnt:[2]")
		}, "it runs in a container: its mnt namespace is not the node's"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := unfixed(t)
			test.seed(s)
			if test.want != "" {
				s.fails(test.want, "--fix-kubelet", "--apply")
				s.fails(test.want, "--rollback-kubelet")
			} else {
				s.succeeds("--fix-kubelet", "--apply")
				if !s.has(dropIn) {
					t.Error("the kubelet was not found")
				}
			}
			if s.has("tenant/" + fix.DropIn) {
				t.Error("a file was written where a process that is not the kubelet wanted it")
			}
		})
	}
}

// TestFixKubeletThroughItsRoot: a doctor in its own mount namespace finds the kubelet's files below
// /proc/PID/root, and prints the paths of the node.
func TestFixKubeletThroughItsRoot(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.process("7", "kubelet", "--config=/etc/kubelet.yaml", "--config-dir=/etc/kubelet.d")
	s.namespace("proc/self", "mnt:[2]")
	s.write("proc/7/root/etc/kubelet.yaml", plainKubelet)
	s.check(os.Mkdir(s.path("proc/7/root/etc/kubelet.d"), 0o755))
	for _, f := range s.findings() {
		if strings.Contains(strings.Join(f.Evidence, " "), "proc/7") {
			t.Errorf("evidence %q", f.Evidence)
		}
	}
	shown := s.succeeds("--fix-kubelet", "--apply")
	if strings.Contains(shown, "proc/7") || !strings.Contains(shown, "Wrote /etc/kubelet.d/"+fix.DropIn) {
		t.Errorf("shown:\n%s", shown)
	}
	if own := "proc/7/root/etc/kubelet.d/" + fix.DropIn; !s.has(own) {
		t.Errorf("there is no %s", own)
	}
}

// TestFixKubeletOfAnotherRoot: the state to remove is in the folder of the kubelet's flag.
func TestFixKubeletOfAnotherRoot(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.process("7", "kubelet", "--config", s.path("kubelet/config.yaml"), "--config-dir", s.path("kubelet.d"),
		"--root-dir", s.path("kubelet"))
	args := s.command("--fix-kubelet", "--apply", "--static-cpus")
	at := slices.Index(args, "--kubelet-dir")
	applied := succeed(t, slices.Delete(args, at, at+2)...)
	if !s.has(dropIn) || s.has("kubelet/cpu_manager_state") {
		t.Errorf("the state of the other policy is still there:\n%s", applied)
	}
}

// TestKubeletWithoutFile: a kubelet without a configuration flag reads no file, even at the usual path.
func TestKubeletWithoutFile(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.write("kubelet/config.yaml", healthyKubelet)
	s.process("7", "kubelet", "--kube-reserved=cpu=1")
	if shown := s.succeeds("--fix-kubelet"); !strings.Contains(shown,
		"Tandem does not change its command line") ||
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

// TestFixKubeletWayBack: the printed way back undoes the change even if the kubelet has ended.
func TestFixKubeletWayBack(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	s.check(os.Rename(s.path("kubelet/config.yaml"), s.path("elsewhere.yaml")))
	s.process("7", "kubelet", "--config", s.path("elsewhere.yaml"), "--config-dir", s.path("kubelet.d"))
	_, told, _ := strings.Cut(s.succeeds("--fix-kubelet", "--apply", "--static-cpus"),
		"To undo the change: tandem doctor ")
	s.cpuState("static", s.allCPUs())
	s.remove("proc/7")
	told, _, _ = strings.Cut(strings.ReplaceAll(told, "ROOT", s.root), "\n")
	if back := s.succeeds(strings.Fields(told)...); s.has(dropIn) || s.has("kubelet/cpu_manager_state") {
		t.Errorf("the state of the other policy is still there:\n%s", back)
	}
}
