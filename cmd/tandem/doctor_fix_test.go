package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
)

const plainKubelet = `# of the cloud
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
topologyManagerPolicy: none # for now
kubeReserved:
  cpu: 500m
`

const fixedKubelet = `# of the cloud
apiVersion: kubelet.config.k8s.io/v1beta1
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
	if got := s.read("kubelet/config.yaml"); got != plainKubelet || s.has("kubelet/config.yaml"+doctor.Backup) ||
		!s.has("kubelet/cpu_manager_state") {
		t.Errorf("a dry run changed something:\n%s", got)
	}

	if applied := run("--fix-kubelet", "--apply"); !strings.Contains(applied,
		"Removed ROOT/kubelet/cpu_manager_state") || !strings.Contains(applied, "systemctl restart kubelet") {
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
		t.Errorf("after the fix there is still:\n%s", doctor.Report(got))
	}
	if again := run("--fix-kubelet", "--apply"); again != "ROOT/kubelet/config.yaml needs no change.\n" {
		t.Errorf("applied twice:\n%s", again)
	}

	s.cpuState("static", s.allCPUs())
	if back := run("--rollback-kubelet"); !strings.Contains(back, "is what it was") ||
		!strings.Contains(back, "Removed ROOT/kubelet/cpu_manager_state") {
		t.Errorf("told:\n%s", back)
	}
	if got := s.read("kubelet/config.yaml"); got != plainKubelet || s.has("kubelet/config.yaml"+doctor.Backup) {
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
	if got := s.read("kubelet/config.yaml" + doctor.Backup); got != plainKubelet {
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
		{[]string{"--fix-kubelet", "--kubelet-config", s.path("none.yaml")}, exitError,
			"none.yaml: file does not exist"},
	} {
		code, _, stderr := run(s.command(test.args...)...)
		if code != test.code || !strings.Contains(stderr, test.want) {
			t.Errorf("%q: exit code %d, want %d; %q, want %q", test.args, code, test.code, stderr, test.want)
		}
	}
	s.write("proc/7/comm", "kubelet\n")
	s.write("proc/7/cmdline",
		"kubelet\x00--topology-manager-policy\x00none\x00--config="+s.path("kubelet/config.yaml")+"\x00")
	code, _, stderr := run(s.command("--fix-kubelet")...)
	if want := "topologyManagerPolicy is set by the kubelet's flag --topology-manager-policy, " +
		"which stands above"; code != exitError || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, %q, want %q", code, stderr, want)
	}
}

// TestFixKubeletLeavesOthersAlone: what is no configuration of the kubelet's is not patched.
func TestFixKubeletLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	for name, content := range map[string]string{
		"proxy":   "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n",
		"version": "apiVersion: kubelet.config.k8s.io/v2\nkind: KubeletConfiguration\n",
		"neither": "mode: nftables\n",
		"empty":   "",
	} {
		s.write(name, content)
		code, stdout, stderr := run(s.command("--fix-kubelet", "--apply", "--kubelet-config", s.path(name))...)
		if code != exitError || stdout != "" || !strings.Contains(stderr, s.path(name)+": it is no ") ||
			s.read(name) != content || s.has(name+doctor.Backup) {
			t.Errorf("%s: exit code %d, %q, %q; the file is\n%s", name, code, stdout, stderr, s.read(name))
		}
	}
}

// TestFixKubeletWithDropIns: where the kubelet reads a folder of drop-ins, a file of our own is put there,
// and all others stay as they are.
func TestFixKubeletWithDropIns(t *testing.T) {
	t.Parallel()
	s := unfixed(t)
	const own, cloud = "kubelet.d/99-tandem.conf",
		kubeletKind +
			"topologyManagerPolicy: best-effort\ntopologyManagerPolicyOptions: {max-allowable-numa-nodes: \"16\"}\n"
	s.write("kubelet.d/90-cloud.conf", cloud)
	s.write("proc/7/comm", "kubelet\n")
	s.write("proc/7/cmdline",
		"kubelet\x00--config="+s.path("kubelet/config.yaml")+"\x00--config-dir="+s.path("kubelet.d")+"\x00")
	if shown := succeed(t, s.command("--fix-kubelet")...); !strings.Contains(shown,
		"+topologyManagerPolicy: restricted\n") || s.has(own) {
		t.Errorf("a dry run shows\n%s", shown)
	}
	applied := succeed(t, s.command("--fix-kubelet", "--apply")...)
	for _, want := range []string{
		"--- " + s.path(own), "+kind: KubeletConfiguration\n", "Removed ", "systemctl restart kubelet",
	} {
		if !strings.Contains(applied, want) {
			t.Errorf("%q is not in\n%s", want, applied)
		}
	}
	if s.read("kubelet/config.yaml") != plainKubelet || s.read("kubelet.d/90-cloud.conf") != cloud ||
		s.has("kubelet/config.yaml"+doctor.Backup) {
		t.Error("a file of somebody else's was changed")
	}
	s.cpuState("static", s.allCPUs())
	if got := s.findings(); len(got) > 0 {
		t.Errorf("after the fix there is still:\n%s", doctor.Report(got))
	}
	if again := succeed(t, s.command("--fix-kubelet", "--apply")...); again != s.path(own)+
		" needs no change.\n" {
		t.Errorf("applied twice:\n%s", again)
	}
	// no CPUs are reserved any more
	s.write("kubelet/config.yaml", strings.Replace(plainKubelet, "cpu: 500m", "memory: 1Gi", 1))
	if more := succeed(t, s.command("--fix-kubelet", "--apply")...); !strings.Contains(more,
		"+reservedSystemCPUs: ") || !strings.Contains(s.read(own), "restricted") {
		t.Errorf("more settings:\n%s\nin\n%s", more, s.read(own))
	}
	s.remove("proc") // the kubelet is dead
	if code, _, stderr := run(s.command("--rollback-kubelet")...); code != exitError ||
		!strings.Contains(stderr, "--kubelet-config-dir") {
		t.Errorf("rolled back without the folder: exit code %d, %q", code, stderr)
	}
	if back := succeed(t, s.command("--rollback-kubelet", "--kubelet-config-dir",
		s.path("kubelet.d"))...); !strings.Contains(back, s.path(own)+" is gone.") || s.has(own) {
		t.Errorf("rolled back:\n%s", back)
	}
	s.write("kubelet.d/99-zone.conf", kubeletKind+"topologyManagerPolicy: none\n")
	code, _, stderr := run(s.command("--fix-kubelet", "--kubelet-config-dir", s.path("kubelet.d"))...)
	if want := "set by " + s.path("kubelet.d/99-zone.conf") + ", which stands above " +
		s.path(own); code != exitError || !strings.Contains(stderr, want) {
		t.Errorf("a drop-in behind ours: exit code %d, %q, want %q", code, stderr, want)
	}
}
