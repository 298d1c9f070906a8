// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/docs"
)

// roller runs roll.sh with a kubectl that logs its arguments.
type roller struct {
	t   *testing.T
	dir string
}

// newRoller makes a kubectl with a DaemonSet unless the file "missing" exists. A pod of last month is on the
// node until it is deleted; the label brings the next pod, except to the node "lone".
func newRoller(t *testing.T) roller {
	t.Helper()
	const fake = `#!/bin/sh
echo "$*" >>DIR/log
case "$*" in
get\ daemonset*) [ ! -e DIR/missing ] || { echo NotFound >&2; exit 1; } ;;
delete*) rm -f DIR/pod ;;
label*lone*) ;;
label*) [ -e DIR/pod ] || echo pod/of-today >DIR/pod ;;
get\ pod*) cat DIR/pod 2>/dev/null ;;
wait\ pod*) echo "ready: $(cat DIR/pod)" >>DIR/log ;;
esac
case "$*" in
wait\ pod*nodeName=bad*) exit 1 ;;
esac
exit 0
`
	r := roller{t, t.TempDir()}
	r.write("kubectl", strings.ReplaceAll(fake, "DIR", r.dir))
	return r
}

func (r roller) write(name, content string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

// run returns the output of the script, and the calls of kubectl without the first, for the DaemonSet.
func (r roller) run(args ...string) (said, log string, err error) {
	r.t.Helper()
	_ = os.Remove(filepath.Join(r.dir, "log")) // there is none before the first run
	cmd := exec.Command("sh", append([]string{"kubelet/roll.sh"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECTL="+filepath.Join(r.dir, "kubectl"), "PAUSE=0")
	out, err := cmd.CombinedOutput()
	if err == nil && strings.Contains(string(out), "usage") {
		r.t.Error("usage without a failure")
	}
	content, readErr := os.ReadFile(filepath.Join(r.dir, "log"))
	if readErr != nil {
		return string(out), "", err // kubectl was not called
	}
	looks := fmt.Sprintf("get daemonset --namespace=kube-system tandem-kubelet-%s --output=name\n", args[0])
	log, looked := strings.CutPrefix(string(content), looks)
	if !looked {
		r.t.Errorf("%q does not begin with %q:\n%s", args, looks, content)
	}
	return string(out), log, err
}

// rolled returns the calls of kubectl for a node up to its label.
func rolled(node string) (pod, calls string) {
	pod = "pod --namespace=kube-system --selector=app.kubernetes.io/name=tandem-kubelet-fix " +
		"--field-selector=spec.nodeName=" + node
	return pod, fmt.Sprintf("drain %s --ignore-daemonsets --timeout=30m\ndelete %s --timeout=2m\n", node, pod) +
		fmt.Sprintf("label --overwrite node %s tandem.dev/kubelet=fix\n", node)
}

// The nodes are drained one after the other, and the first that does not get well stops the rest.
func TestRoll(t *testing.T) {
	r := newRoller(t)
	for _, wrong := range [][]string{{"forth", "a"}, {"fix"}, {"back"}, nil} {
		if _, log, err := r.run(wrong...); err == nil || log != "" {
			t.Errorf("%q: %v, %s", wrong, err, log)
		}
	}
	documented, err := docs.Of("..", "deployments/kubelet/roll.sh")
	if err != nil || len(documented) < 2 {
		t.Fatalf("documented are %v, %v", documented, err)
	}
	for _, c := range documented {
		r.write("pod", "pod/of-last-month\n")
		if _, log, err := r.run(c.Args...); err != nil ||
			!strings.HasSuffix(log, "\nuncordon "+c.Args[len(c.Args)-1]+"\n") || strings.Contains(log, "last-month") {
			t.Errorf("%s: %v\n%s", c, err, log)
		}
	}
	_, log, err := r.run("fix", "a", "bad", "c")
	var want strings.Builder
	for _, node := range []string{"a", "bad"} {
		pod, calls := rolled(node)
		fmt.Fprintf(&want, "%sget %s --output=name\n", calls, pod)
		fmt.Fprintf(&want, "wait %s --for=condition=Ready --timeout=15m\nready: pod/of-today\n", pod)
		if node == "a" {
			want.WriteString("wait node a --for=condition=Ready --timeout=5m\nuncordon a\n")
		}
	}
	if diff := cmp.Diff(want.String(), log); diff != "" || err == nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// Without the DaemonSet no node is drained and none gets the label: the pod of a later apply would restart
// the kubelet of a node in use.
func TestRollWithoutDaemonSet(t *testing.T) {
	r := newRoller(t)
	r.write("missing", "")
	for _, action := range []string{"fix", "back"} {
		said, log, err := r.run(action, "a")
		if err == nil || log != "" || !strings.Contains(said, "DaemonSet tandem-kubelet-"+action+" not found") ||
			!strings.Contains(said, "kubectl apply -k deployments/kubelet first") {
			t.Errorf("%s: %v\n%s\nlog:\n%s", action, err, said, log)
		}
	}
}

// A node to which no pod comes loses the label again, and stays cordoned.
func TestRollWithoutPod(t *testing.T) {
	said, log, err := newRoller(t).run("fix", "lone", "c")
	pod, calls := rolled("lone")
	want := calls + strings.Repeat("get "+pod+" --output=name\n", 60) + "label node lone tandem.dev/kubelet-\n"
	if diff := cmp.Diff(want, log); diff != "" || err == nil || !strings.Contains(said, "stays cordoned") {
		t.Errorf("%v\n%s (-want +got):\n%s", err, said, diff)
	}
}

// roll.sh waits for a pod for as long as node.sh can take: two times 120 looks of a second's pause and two
// seconds of wget.
func TestRollWaitsForNode(t *testing.T) {
	node, err := os.ReadFile("kubelet/node.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"$looks -lt 120 ]", "${PAUSE:-1}", "busybox timeout 2 "} {
		if !strings.Contains(string(node), part) {
			t.Errorf("node.sh has no %q", part)
		}
	}
	roll, err := os.ReadFile("kubelet/roll.sh")
	if err != nil {
		t.Fatal(err)
	}
	ready := regexp.MustCompile(`timeout="\$\{READY:-(\w+)\}"`).FindStringSubmatch(string(roll))
	if ready == nil {
		t.Fatal("roll.sh has no READY")
	}
	if wait, err := time.ParseDuration(ready[1]); err != nil || wait < 2*120*3*time.Second {
		t.Errorf("roll.sh waits %s, %v", wait, err)
	}
}
