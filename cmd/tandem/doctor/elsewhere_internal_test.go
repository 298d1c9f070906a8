// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadElsewhere: for a reader who is not on the node, evidence names the kubelet's configz instead of the
// file.
func TestReadElsewhere(t *testing.T) {
	t.Parallel()
	n := Node{Config: filepath.Join(t.TempDir(), "stdin"), ReadElsewhere: "gpu-1"}
	content := "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n" +
		"topologyManagerPolicy: none\n"
	if err := os.WriteFile(n.Config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	n.shapes.Node = &n
	f := n.readSettings()
	if f.unread != nil {
		t.Fatal(f.unread)
	}
	f.Changed = f.Files
	var text strings.Builder
	for _, found := range runChecks(&n, ofPlugins, kubeletChecks...) {
		text.WriteString(strings.Join(append(found.Evidence, found.Fix...), "\n") + "\n")
	}
	for _, want := range []string{
		"configz of the kubelet of gpu-1: topologyManagerPolicy: none\n",
		"configz of the kubelet of gpu-1: cpuManagerPolicy is not set, the default is none\n",
		"configz of the kubelet of gpu-1 is younger than the kubelet's process\n",
		"in the kubelet's configuration: topologyManagerPolicy: restricted (tandem doctor --drop-in ",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), n.Config) {
		t.Errorf("words of a reader on the node:\n%s", text.String())
	}
}
