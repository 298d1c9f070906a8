package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const plainKubelet = `# of the cloud
kind: KubeletConfiguration
topologyManagerPolicy: none # for now
kubeReserved:
  cpu: 500m
`

const fixedKubelet = `# of the cloud
kind: KubeletConfiguration
topologyManagerPolicy: restricted # for now
kubeReserved:
  cpu: 500m
cpuManagerPolicy: static
`

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

// unfixed is a node with a kubelet as kubeadm leaves it.
func unfixed(t *testing.T) *sick {
	t.Helper()
	s := layOut(t, sysfs(t, "oci-mi300x-derived", 1))
	s.write("kubelet/config.yaml", plainKubelet)
	s.check(os.Chmod(s.path("kubelet/config.yaml"), 0o640))
	s.cpuState("none", "")
	return s
}

func TestFixKubelet(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	run := func(args ...string) string {
		t.Helper()
		return strings.ReplaceAll(succeed(t, s.command(args...)...), s.root, "ROOT")
	}
	shown := run("--fix-kubelet")
	golden(t, "doctor-fix.txt", shown)
	if got := s.read("kubelet/config.yaml"); got != plainKubelet || s.has("kubelet/config.yaml"+backup) || !s.has("kubelet/cpu_manager_state") {
		t.Errorf("a dry run changed something:\n%s", got)
	}

	if applied := run("--fix-kubelet", "--apply"); !strings.Contains(applied, "Removed ROOT/kubelet/cpu_manager_state") || !strings.Contains(applied, "systemctl restart kubelet") {
		t.Errorf("told:\n%s", applied)
	}
	if diff := cmp.Diff(fixedKubelet, s.read("kubelet/config.yaml")); diff != "" {
		t.Errorf("patched (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(s.path("kubelet/config.yaml")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode of the configuration changed: %v, %v", info.Mode(), err)
	}
	if s.has("kubelet/cpu_manager_state") {
		t.Error("the state of the other policy is still there")
	}
	if got := s.findings(); len(got) > 0 {
		t.Errorf("after the fix there is still:\n%s", report(got))
	}
	if again := run("--fix-kubelet", "--apply"); again != "ROOT/kubelet/config.yaml needs no change.\n" {
		t.Errorf("applied twice:\n%s", again)
	}

	s.cpuState("static", s.allCPUs())
	if back := run("--rollback-kubelet"); !strings.Contains(back, "is what it was") || !strings.Contains(back, "Removed ROOT/kubelet/cpu_manager_state") {
		t.Errorf("told:\n%s", back)
	}
	if got := s.read("kubelet/config.yaml"); got != plainKubelet || s.has("kubelet/config.yaml"+backup) {
		t.Errorf("rolled back to:\n%s", got)
	}
}

// TestFixKubeletKeepsTheFirstCopy: what the node's owner wrote is not overwritten by what was patched.
func TestFixKubeletKeepsTheFirstCopy(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	succeed(t, s.command("--fix-kubelet", "--apply")...)
	s.write("kubelet/config.yaml", strings.Replace(fixedKubelet, "restricted", "best-effort", 1))
	succeed(t, s.command("--fix-kubelet", "--apply")...)
	if got := s.read("kubelet/config.yaml" + backup); got != plainKubelet {
		t.Errorf("the copy is\n%s", got)
	}
}

func TestFixKubeletErrors(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--apply"}, exitUsage, "--apply belongs to --fix-kubelet"},
		{[]string{"--fix-kubelet", "--rollback-kubelet"}, exitUsage, "exclude each other"},
		{[]string{"--cpus", "-1"}, exitUsage, "want 0 or more"},
		{[]string{"--rollback-kubelet"}, exitError, "nothing was changed by tandem doctor"},
		{[]string{"--fix-kubelet", "--kubelet-config", s.path("none.yaml")}, exitError, "none.yaml: file does not exist"},
	} {
		code, _, stderr := run(s.command(test.args...)...)
		if code != test.code || !strings.Contains(stderr, test.want) {
			t.Errorf("%q: exit code %d, want %d; %q, want %q", test.args, code, test.code, stderr, test.want)
		}
	}
	s.write("proc/7/comm", "kubelet\n")
	s.write("proc/7/cmdline", "kubelet\x00--topology-manager-policy\x00none\x00--config="+s.path("kubelet/config.yaml")+"\x00")
	code, _, stderr := run(s.command("--fix-kubelet")...)
	if want := "topologyManagerPolicy is set by the kubelet's flag --topology-manager-policy, which stands above"; code != exitError || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, %q, want %q", code, stderr, want)
	}
}
