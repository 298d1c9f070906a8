// SPDX-License-Identifier: Apache-2.0

package fix

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/settings"
)

// runningKubelet adds a process of two minutes to a node, which reads the settings of the node.
func runningKubelet(t *testing.T, n *managers.Kubelet) {
	t.Helper()
	n.ProcRoot = t.TempDir()
	for name, content := range map[string]string{
		"uptime": "125.00 1.00\n", "7/comm": "kubelet\n", "7/status": "Uid:\t0\t0\t0\t0\n",
		"7/stat":    "7 (kubelet) S" + strings.Repeat(" 1", 18) + " 500\n",
		"7/cmdline": "kubelet\x00--config=" + settings.Default(n.KubeletDir) + "\x00",
	} {
		file := filepath.Join(n.ProcRoot, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"1/ns/mnt", "1/ns/pid", "7/ns/mnt", "7/ns/pid", "self/ns/mnt"} {
		file := filepath.Join(n.ProcRoot, link)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Base(link)+":[1]", file); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSettled: the content from before a change exists until the kubelet has run with the change. A later
// change is undone to the change before then.
func TestSettled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		later time.Duration // time of the second change, after the first
		back  string        // what is there when the second change is undone
	}{
		"the kubelet has not started with the first change": {time.Minute, "nothing"},
		"the kubelet has run with the first change":         {time.Hour, "the first change"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := steppedNode(t, "none")
			runningKubelet(t, &n)
			n.Now = time.Now()
			var told strings.Builder
			if err := (fixer{out: &told, node: n, open: settings.OpenFolder}).fix(Change{Apply: true}); err != nil {
				t.Fatal(err)
			}
			if want := "--rollback-kubelet --kubelet-config-dir"; !strings.Contains(told.String(), want) {
				t.Errorf("%q is not in\n%s", want, told.String())
			}
			own := filepath.Join(n.ConfigDir, DropIn)
			first, err := os.ReadFile(own)
			if err != nil {
				t.Fatal(err)
			}
			n.Now = time.Now().Add(test.later)
			silent := fixer{out: io.Discard, node: n, open: settings.OpenFolder}
			if err := silent.fix(Change{true, true}); err != nil {
				t.Fatal(err)
			}
			if err := silent.rollBack(true); err != nil {
				t.Fatal(err)
			}
			back := "nothing"
			if content, err := os.ReadFile(own); err == nil && string(content) == string(first) {
				back = "the first change"
			}
			if back != test.back {
				t.Errorf("after the second change is undone there is %s, want %s", back, test.back)
			}
		})
	}
}
