// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
)

// TestReadElsewhere: for a reader who is not on the node, evidence names the kubelet's configz instead of the
// file.
func TestReadElsewhere(t *testing.T) {
	t.Parallel()
	k := Kubelet{Config: filepath.Join(t.TempDir(), "stdin"), ReadElsewhere: "gpu-1"}
	content := "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n" +
		"topologyManagerPolicy: none\n"
	if err := os.WriteFile(k.Config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := k.Read(machine.Process{})
	if err != nil {
		t.Fatal(err)
	}
	f.Changed = f.Files
	var text strings.Builder
	for _, found := range slices.Concat(adviseTopologyPolicy(f), adviseSettings(f)) {
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
	if strings.Contains(text.String(), k.Config) {
		t.Errorf("words of a reader on the node:\n%s", text.String())
	}
}
