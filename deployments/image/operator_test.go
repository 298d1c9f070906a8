package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// operator starts what "$@" says in the image at $0, on a root that is read-only but for the folders that the
// SR-IOV network operator's DaemonSet mounts (bindata/manifests/plugins/sriov-device-plugin.yaml there).
const operator = `
root=$0 volumes=$1; shift
mount --bind "$root" "$root"
mkdir -p "$root/sys" "$root/dev"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
for folder in var/lib/kubelet/device-plugins etc/pcidp var/run/k8s.cni.cncf.io/devinfo/dp; do
	mkdir -p "$root/$folder" "$volumes/$folder"
	mount --bind "$volumes/$folder" "$root/$folder"
done
mount -o remount,bind,ro "$root"
exec chroot "$root" "$@"
`

// TestUnderTheSRIOVOperator starts tandem-rdma as the operator starts the stock plugin, with arguments alone.
func TestUnderTheSRIOVOperator(t *testing.T) {
	t.Attr("parity", "sriov/daemonset-shape")
	root, volumes := rootOf(t, programs(t)), t.TempDir()
	if out, err := exec.Command("unshare", "--mount", "mount", "-t", "tmpfs", "none",
		volumes).CombinedOutput(); err != nil {
		t.Skipf("no mount namespace can be made here: %v: %s", err, out)
	}
	config := filepath.Join(volumes, "etc/pcidp/node-1")
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config,
		[]byte(`{"resourceList": [{"resourceName": "vf", "selectors": {"vendors": ["15b3"], "IsRdma": true}}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command("unshare", "--mount", "sh", "-euc", operator, root, volumes,
		"/entrypoint.sh", "--log-level=10", "--resource-prefix=openshift.io", "--config-file=/etc/pcidp/node-1")
	daemon.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := daemon.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	said := serves(log)
	if err := daemon.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := daemon.Wait(); err != nil ||
		!strings.Contains(said, "socket=/var/lib/kubelet/device-plugins/tandem/coordination.sock") {
		t.Errorf("%v:\n%s", err, said)
	}
}

// serves reads a daemon's log until it serves the other one, or ends.
func serves(log io.Reader) string {
	var said strings.Builder
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "serve coordination") {
			break
		}
	}
	return said.String()
}
