package deployments_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/docs"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/programs"
)

// busybox stands in for the image's: nsenter runs on a node that is a folder, timeout (of wget) tells how its
// kubelet is. The kubelet dies of the first restart where the file "dies" says so, and its process is gone
// too where "kills" does.
const busybox = `#!/bin/sh
case $1 in
timeout) [ -e NODE/dead ] || echo ok ;;
sed) exec sed "$2" "$3" ;;
nsenter)
	while [ "$1" != -- ]; do shift; done
	shift
	case "$*" in
	"systemctl restart kubelet")
		echo restart >>NODE/log
		rm -f NODE/dead
		[ ! -e NODE/dies ] || mv NODE/dies NODE/dead
		[ ! -e NODE/kills ] || rm -r NODE/proc NODE/kills
		;;
	/proc/*/root/usr/bin/tandem\ *)
		shift
		echo "tandem $*" | sed "s,NODE,,g" >>NODE/log
		exec NODE/tandem "$@" --sysfs-root=NODE/sys --kubelet-dir=NODE/kubelet --proc-root=NODE/proc --run-dir=NODE/run
		;;
	*) echo "unexpected: $*" >&2; exit 1 ;;
	esac
	;;
esac
`

const unfixed = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 42\n"

// kubeletNode is a node on which the script can run.
type kubeletNode struct {
	t   *testing.T
	dir string
}

func newKubeletNode(t *testing.T) *kubeletNode {
	t.Helper()
	n := &kubeletNode{t, t.TempDir()}
	m, err := machines.Load("oci-mi300x-derived", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(n.path("sys"), m.FS()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(programs.Build(t, "tandem"), "tandem"), n.path("tandem")); err != nil {
		t.Fatal(err)
	}
	n.write("busybox", strings.ReplaceAll(busybox, "NODE", n.dir))
	n.write("kubelet/config.yaml", unfixed)
	return n
}

func (n *kubeletNode) path(name string) string { return filepath.Join(n.dir, name) }

func (n *kubeletNode) write(name, content string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(n.path(name), []byte(content), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

func (n *kubeletNode) read(name string) string {
	content, _ := os.ReadFile(n.path(name)) // "" where there is none
	return string(content)
}

// run runs the script as a pod does; done is whether the pod gets ready.
func (n *kubeletNode) run(action string) (done bool, said, log string) {
	n.t.Helper()
	for _, file := range []string{"done", "log"} {
		os.RemoveAll(n.path(file))
	}
	script := exec.Command("sh", "kubelet/node.sh", action, n.path("done"))
	script.Env = append(os.Environ(), "PATH="+n.dir+":"+os.Getenv("PATH"), "PAUSE=0")
	out, err := script.CombinedOutput()
	_, missing := os.Stat(n.path("done"))
	if done = missing == nil; done != (err == nil) {
		n.t.Errorf("%s: ready: %t, %v\n%s", action, done, err, out)
	}
	return done, string(out), n.read("log")
}

// The configuration is changed and put back with one restart each, a node that needs nothing is left alone,
// and a kubelet that does not bear the change gets its old configuration back.
func TestKubeletOfNode(t *testing.T) {
	n := newKubeletNode(t)
	const fix, back = "tandem doctor --fix-kubelet --apply\n", "tandem doctor --rollback-kubelet\n"
	expect := func(action string, wantDone bool, wantLog, wantFile string) {
		t.Helper()
		done, said, log := n.run(action)
		if done != wantDone {
			t.Errorf("%s: ready: %t\n%s", action, done, said)
		}
		if diff := cmp.Diff(wantLog, log); diff != "" {
			t.Errorf("%s (-want +got):\n%s", action, diff)
		}
		if file := n.read("kubelet/config.yaml"); !strings.HasPrefix(file, unfixed) ||
			strings.Contains(file, "topologyManagerPolicy: restricted") != (wantFile == "fixed") {
			t.Errorf("after %s the file is\n%s", action, file)
		}
	}
	expect("fix", true, fix+"restart\n", "fixed")
	fixed := n.read("kubelet/config.yaml")
	expect("fix", true, fix, "fixed")
	expect("back", true, back+"restart\n", "unfixed")
	n.write("dies", "")
	expect("fix", false,
		fix+"restart\ntandem doctor --rollback-kubelet --kubelet-config=/kubelet/config.yaml\nrestart\n", "unfixed")
	n.write("dead", "") // of something else
	n.write("kubelet/config.yaml", fixed)
	expect("fix", false, fix, "fixed")
	if err := os.Remove(n.path("dead")); err != nil {
		t.Fatal(err)
	}
	expect("back", false, back, "fixed") // there is no earlier file
}

// A kubelet with a folder of drop-ins gets one more there. When it dies of that, it does not tell any more
// where the folder is.
func TestDropInOfNode(t *testing.T) {
	n := newKubeletNode(t)
	const own = "drop-ins/99-tandem.conf"
	n.write("drop-ins/10-cloud.conf", strings.Replace(unfixed, "maxPods: 42", "topologyManagerPolicy: none", 1))
	n.write("proc/7/comm", "kubelet\n")
	n.write("proc/7/cmdline",
		"kubelet\x00--config="+n.path("kubelet/config.yaml")+"\x00--config-dir\x00"+n.path("drop-ins")+"\x00")
	expect := func(action string, wantDone, wantOwn bool, wantLog string) {
		t.Helper()
		done, said, log := n.run(action)
		fixed := strings.Contains(n.read(own), "topologyManagerPolicy: restricted\n")
		if done != wantDone || fixed != wantOwn || n.read("kubelet/config.yaml") != unfixed {
			t.Errorf("%s: ready: %t\n%s\n%s:\n%s", action, done, said, own, n.read(own))
		}
		if diff := cmp.Diff(wantLog, log); diff != "" {
			t.Errorf("%s (-want +got):\n%s", action, diff)
		}
	}
	const fix, back = "tandem doctor --fix-kubelet --apply\n", "tandem doctor --rollback-kubelet\n"
	expect("fix", true, true, fix+"restart\n")
	expect("fix", true, true, fix)
	expect("back", true, false, back+"restart\n")
	n.write("dies", "")
	n.write("kills", "") // and its command line is gone with it
	expect("fix", false, false, fix+
		"restart\ntandem doctor --rollback-kubelet --kubelet-config=/kubelet/config.yaml "+
		"--kubelet-config-dir=/drop-ins\nrestart\n")
}

// The nodes are drained one after the other, and the first that does not get well stops the rest.
func TestRoll(t *testing.T) {
	dir := t.TempDir()
	kubectl := filepath.Join(dir, "kubectl")
	const fake = `#!/bin/sh
echo "$*" >>DIR/log
case "$*" in
get*) echo pod/tandem-kubelet-fix-x ;;
wait\ pod*nodeName=bad*) exit 1 ;;
esac
`
	if err := os.WriteFile(kubectl, []byte(strings.ReplaceAll(fake, "DIR", dir)), 0o755); err != nil {
		t.Fatal(err)
	}
	roll := func(args ...string) (string, error) {
		cmd := exec.Command("sh", append([]string{"kubelet/roll.sh"}, args...)...)
		cmd.Env = append(os.Environ(), "KUBECTL="+kubectl, "PAUSE=0")
		out, err := cmd.CombinedOutput()
		if err == nil && strings.Contains(string(out), "usage") {
			t.Error("usage without a failure")
		}
		log, _ := os.ReadFile(filepath.Join(dir, "log")) // none where kubectl was not called
		return string(log), err
	}
	if log, err := roll("forth", "a"); err == nil || log != "" {
		t.Errorf("a wrong action: %v, %s", err, log)
	}
	documented, err := docs.Of("..", "deployments/kubelet/roll.sh")
	if err != nil || len(documented) < 2 {
		t.Fatalf("documented are %v, %v", documented, err)
	}
	for _, c := range documented {
		if log, err := roll(c.Args...); err != nil ||
			!strings.HasSuffix(log, "\nuncordon "+c.Args[len(c.Args)-1]+"\n") {
			t.Errorf("%s: %v\n%s", c, err, log)
		}
	}
	os.RemoveAll(filepath.Join(dir, "log"))
	log, err := roll("fix", "a", "bad", "c")
	var want strings.Builder
	for _, node := range []string{"a", "bad"} {
		fmt.Fprintf(&want,
			"drain %s --ignore-daemonsets --timeout=30m\nlabel --overwrite node %[1]s tandem.dev/kubelet=fix\n", node)
		pod := "pod --namespace=kube-system --selector=app.kubernetes.io/name=tandem-kubelet-fix " +
			"--field-selector=spec.nodeName=" + node
		fmt.Fprintf(&want, "get %s --output=name\nwait %[1]s --for=condition=Ready --timeout=5m\n", pod)
		if node == "a" {
			want.WriteString("wait node a --for=condition=Ready --timeout=5m\nuncordon a\n")
		}
	}
	if diff := cmp.Diff(want.String(), log); diff != "" || err == nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
