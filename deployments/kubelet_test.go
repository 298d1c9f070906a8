// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/programs"
)

// busybox stands in for the image's: nsenter runs on a node that is a folder, timeout (of wget) tells how its
// kubelet is. The kubelet dies of the first restart where the file "dies" says so, and its process is gone
// too where "kills" does. One that is restarted is young. The script is killed before or after the first
// restart where "interrupted-before" or "interrupted-after" says so.
const busybox = `#!/bin/sh
case $1 in
timeout) [ -e NODE/dead ] && [ ! -e NODE/liar ] || echo ok ;;
sed) exec sed "$2" "$3" ;;
nsenter)
	while [ "$1" != -- ]; do shift; done
	shift
	case "$*" in
	"systemctl restart kubelet")
		[ ! -e NODE/interrupted-before ] || { rm NODE/interrupted-before; kill -9 $PPID; exit 1; }
		echo restart >>NODE/log
		rm -f NODE/dead
		[ ! -e NODE/dies ] || mv NODE/dies NODE/dead
		echo 5.00 1.00 >NODE/proc/uptime
		[ ! -e NODE/kills ] || rm -r NODE/proc NODE/kills
		[ ! -e NODE/interrupted-after ] || { rm NODE/interrupted-after; kill -9 $PPID; }
		;;
	rm\ *) exec "$@" ;;
	"systemctl is-active --quiet kubelet") [ ! -e NODE/dead ] || exit 3 ;;
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
	t     *testing.T
	dir   string
	flags string // of tandem doctor, as the DaemonSet has them
}

func newKubeletNode(t *testing.T) *kubeletNode {
	t.Helper()
	n := &kubeletNode{t: t, dir: t.TempDir()}
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
	n.write("drop-ins/10-cloud.conf", strings.Replace(unfixed, "maxPods: 42", "topologyManagerPolicy: none", 1))
	n.process("--config="+n.path("kubelet/config.yaml"), "--config-dir", n.path("drop-ins"))
	return n
}

// process lays out the kubelet's: root's, in the node's namespaces, and started just now.
func (n *kubeletNode) process(flags ...string) {
	n.t.Helper()
	for name, content := range map[string]string{
		"uptime": "5.00 1.00\n", "7/comm": "kubelet\n", "7/status": "Uid:\t0\t0\t0\t0\n",
		"7/stat":    "7 (kubelet) S" + strings.Repeat(" 1", 18) + " 500\n",
		"7/cmdline": "kubelet\x00" + strings.Join(flags, "\x00") + "\x00",
	} {
		n.write("proc/"+name, content)
	}
	for _, link := range []string{"1/ns/mnt", "1/ns/pid", "7/ns/mnt", "7/ns/pid", "self/ns/mnt"} {
		file := n.path("proc/" + link)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.RemoveAll(file),
			os.Symlink(filepath.Base(link)+":[1]", file)); err != nil {
			n.t.Fatal(err)
		}
	}
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

// run runs the script as a new pod does; done is whether the pod gets ready.
func (n *kubeletNode) run(action string) (done bool, said, log string) {
	n.t.Helper()
	for _, file := range []string{"done", "done.begun"} {
		os.RemoveAll(n.path(file))
	}
	return n.again(action)
}

// again runs it as the container of a pod that is started again does.
func (n *kubeletNode) again(action string) (done bool, said, log string) {
	n.t.Helper()
	os.RemoveAll(n.path("log"))
	script := exec.Command("sh", "kubelet/node.sh", action, n.path("done"))
	script.Env = append(os.Environ(), "PATH="+n.dir+":"+os.Getenv("PATH"), "PAUSE=0", "FLAGS="+n.flags)
	out, err := script.CombinedOutput()
	_, missing := os.Stat(n.path("done"))
	if done = missing == nil; done != (err == nil) {
		n.t.Errorf("%s: ready: %t, %v\n%s", action, done, err, out)
	}
	return done, string(out), n.read("log")
}

// expect is how a run ends.
type expect struct {
	done, fixed bool // whether Tandem's file is there
	log         string
}

// own is Tandem's file.
const own = "drop-ins/99-tandem.conf"

func (n *kubeletNode) check(
	action string, run func(string) (bool, string, string), want expect,
) (said string) {
	n.t.Helper()
	done, said, log := run(action)
	fixed := strings.Contains(n.read(own), "topologyManagerPolicy: restricted\n")
	if done != want.done || fixed != want.fixed || n.read("kubelet/config.yaml") != unfixed {
		n.t.Errorf("%s: ready: %t\n%s\n%s:\n%s", action, done, said, own, n.read(own))
	}
	if diff := cmp.Diff(want.log, log); diff != "" {
		n.t.Errorf("%s (-want +got):\n%s", action, diff)
	}
	return said
}

const (
	fix, back = "tandem doctor --fix-kubelet --apply\n", "tandem doctor --rollback-kubelet\n"
	undo      = "tandem doctor --rollback-kubelet --kubelet-config-dir=/drop-ins --kubelet-dir=/kubelet\n"
	restart   = "restart\n"
)

// The settings come and go with one restart each, a node that needs nothing is left alone, and a kubelet that
// does not bear them loses them again, although it does not tell any more where its folder is.
func TestKubeletOfNode(t *testing.T) {
	n := newKubeletNode(t)
	n.check("fix", n.run, expect{true, true, fix + restart})
	n.check("fix", n.run, expect{true, true, fix})
	n.check("back", n.run, expect{true, false, back + restart})
	n.check("back", n.run, expect{true, false, back})
	n.settled()
	n.write("dies", "")
	n.write("kills", "") // and its command line is gone with it
	n.check("fix", n.run, expect{false, false, fix + restart + undo + restart})
}

// Any pod in the node's network can answer where a dead kubelet did.
func TestLiarOfNode(t *testing.T) {
	n := newKubeletNode(t)
	n.write("dies", "")
	n.write("liar", "")
	n.check("fix", n.run, expect{false, false, fix + restart + undo + restart})
}

// The folder of drop-ins can have any name when the change is undone.
func TestFolderWithSpaceOfNode(t *testing.T) {
	n := newKubeletNode(t)
	const folder = "drop ins/* of it"
	n.write(folder+"/10-cloud.conf", n.read("drop-ins/10-cloud.conf"))
	n.process("--config="+n.path("kubelet/config.yaml"), "--config-dir", n.path(folder))
	n.write("dies", "")
	n.write("kills", "")
	done, said, log := n.run("fix")
	const want = fix + "restart\ntandem doctor --rollback-kubelet --kubelet-config-dir=/" + folder +
		" --kubelet-dir=/kubelet\nrestart\n"
	if diff := cmp.Diff(want, log); done || diff != "" || n.read(folder+"/99-tandem.conf") != "" ||
		!strings.Contains(said, "It is well again with its old settings.") {
		t.Errorf("ready: %t\n%s (-want +got):\n%s", done, said, diff)
	}
}

// The virtual machine has no systemd, and what stands in for it knows all that the script says.
func TestSystemctlOfVM(t *testing.T) {
	known, err := os.ReadFile("../test/vm/build/etc/systemctl")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("kubelet/node.sh")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`on_node systemctl ([^&\n]+[a-z])`).FindAllStringSubmatch(string(script), -1)
	if len(commands) < 2 {
		t.Fatalf("found %q", commands)
	}
	for _, c := range commands {
		if !strings.Contains(string(known), "\n\""+c[1]+"\")") {
			t.Errorf("unknown is %q", c[1])
		}
	}
}

// A kubelet that is dead of something else gets no other settings for it.
func TestDeadKubeletOfNode(t *testing.T) {
	n := newKubeletNode(t)
	n.check("fix", n.run, expect{true, true, fix + restart})
	n.write("dead", "")
	n.check("fix", n.run, expect{false, true, fix})
}

// CPUs for containers alone are asked for by flags.
func TestFlagsOfNode(t *testing.T) {
	n := newKubeletNode(t)
	n.flags = "--static-cpus"
	n.check("fix", n.run, expect{true, true, "tandem doctor --fix-kubelet --static-cpus --apply\nrestart\n"})
	const static = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0,56\"\n"
	if content := n.read(own); !strings.Contains(content, static) {
		t.Errorf("the file is\n%s", content)
	}
}

// A pod that is killed between the file and the restart leaves a kubelet that still runs with the old
// settings, and maybe a state of the old policy. Its container does nothing when it is started again; the
// next pod does the rest.
func TestInterruptedOfNode(t *testing.T) {
	n := newKubeletNode(t)
	n.flags = "--static-cpus"
	n.check("fix", n.run, expect{true, true, "tandem doctor --fix-kubelet --static-cpus --apply\nrestart\n"})
	n.check("fix", n.again, expect{done: true, fixed: true}) // it was done
	n.write("proc/uptime", "7205.00 1.00\n")
	n.write("kubelet/cpu_manager_state", `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`)
	if err := os.Remove(n.path("done")); err != nil {
		t.Fatal(err)
	}
	if said := n.check("fix", n.again, expect{fixed: true}); !strings.Contains(said, "delete this pod") {
		t.Errorf("the container that is started again says\n%s", said)
	}
	n.flags = ""
	n.check("fix", n.run, expect{true, true, fix + restart})
	if state := n.read("kubelet/cpu_manager_state"); state != "" {
		t.Errorf("the state of the other policy is still there: %s", state)
	}
}

// A kubelet that does not bear further settings gets the file from before these settings again.
func TestEarlierFileOfNode(t *testing.T) {
	n := newKubeletNode(t)
	n.check("fix", n.run, expect{true, true, fix + restart})
	before := n.read(own)
	n.flags = "--static-cpus"
	n.write("dies", "")
	n.write("kills", "")
	said := n.check("fix", n.run, expect{false, true, "tandem doctor --fix-kubelet --static-cpus --apply\nrestart\n" +
		"tandem doctor --rollback-kubelet --last --kubelet-config-dir=/drop-ins --kubelet-dir=/kubelet\nrestart\n"})
	if diff := cmp.Diff(before, n.read(own)); diff != "" ||
		!strings.Contains(said, "It is well again with its old settings.") {
		t.Errorf("said:\n%s\n%s (-before +after):\n%s", said, own, diff)
	}
	n.settled()
}

// settled checks that nothing of a change is left to undo.
func (n *kubeletNode) settled() {
	n.t.Helper()
	if left, err := filepath.Glob(n.path(own) + ".*"); err != nil || len(left) > 0 {
		n.t.Errorf("there are %q, %v", left, err)
	}
}

// A kubelet without a configuration file, by flags and an empty folder of drop-ins alone, is restarted after
// its settings are taken away.
func TestNodeWithoutFile(t *testing.T) {
	n := newKubeletNode(t)
	for _, file := range []string{"kubelet/config.yaml", "drop-ins/10-cloud.conf"} {
		if err := os.Remove(n.path(file)); err != nil {
			t.Fatal(err)
		}
	}
	n.process("--config-dir", n.path("drop-ins"))
	n.write("dies", "")
	n.write("kills", "")
	done, said, log := n.run("fix")
	const want = fix + restart + undo + restart
	if done || log != want || !strings.Contains(said, "It is well again with its old settings.") {
		t.Errorf("ready %t\n%s\nlog:\n%s, want\n%s", done, said, log, want)
	}
	n.settled()
}

// A pod that is killed before or after the restart leaves settings that the kubelet may not bear. The next
// pod undoes the change then, whether there was a file before or not.
func TestUndoOfInterrupted(t *testing.T) {
	for _, at := range []string{"interrupted-before", "interrupted-after"} {
		for _, earlier := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/earlier file %t", at, earlier), func(t *testing.T) {
				n := newKubeletNode(t)
				if earlier {
					n.check("fix", n.run, expect{true, true, fix + restart})
					n.flags = "--static-cpus"
				}
				before := n.read(own)
				n.write(at, "")
				n.write("dies", "")
				if done, said, _ := n.run("fix"); done || n.read(own) == before {
					t.Fatalf("ready %t\n%s", done, said)
				}
				if at == "interrupted-before" {
					n.write("proc/uptime", "3600.00 1.00\n") // it still runs with its old settings
				}
				n.flags = ""
				done, said, log := n.run("fix")
				if diff := cmp.Diff(before, n.read(own)); done || diff != "" ||
					!strings.Contains(said, "It is well again with its old settings.") {
					t.Errorf("ready %t\n%s\nlog:\n%s\n%s (-before +after):\n%s", done, said, log, own, diff)
				}
				n.settled()
			})
		}
	}
}

// After an interruption, a kubelet that bears the settings keeps them: there is nothing to undo any more.
func TestWellAfterInterruption(t *testing.T) {
	n := newKubeletNode(t)
	n.write("interrupted-after", "")
	if done, said, _ := n.run("fix"); done {
		t.Fatalf("ready\n%s", said)
	}
	n.check("fix", n.run, expect{true, true, fix})
	n.settled()
}

// Where nothing can be written nothing is restarted.
func TestUnwritableNode(t *testing.T) {
	n := newKubeletNode(t)
	n.write(own+".new/x", "") // stands for a disk that is full or cannot be written
	if said := n.check("fix", n.run, expect{log: fix}); !strings.Contains(said, "This node needs a person") {
		t.Errorf("said:\n%s", said)
	}
	n.process("--config=" + n.path("kubelet/config.yaml"))
	if said := n.check("fix", n.run, expect{log: fix}); !strings.Contains(said, "no folder of drop-ins") {
		t.Errorf("said:\n%s", said)
	}
}
