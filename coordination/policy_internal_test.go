// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// TestPolicyWithDropIn: the kubelet's file names a policy, and a drop-in has the
// required one into the folder of drop-ins, which overrides the file. The coordinator plans by the policy of
// the folder if the folder is known, and otherwise by none of the file's.
func TestPolicyWithDropIn(t *testing.T) {
	dir := t.TempDir()
	const header = "apiVersion: " + configuration.Version + "\nkind: " + configuration.Kind + "\n"
	for name, policy := range map[string]hints.Policy{
		configuration.FileName: hints.None, "kubelet.conf.d/99-tandem.conf": hints.Restricted,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		content := header + "topologyManagerPolicy: " + string(policy) + "\n"
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, configuration.FileName)
	for folder, want := range map[string]hints.Policy{
		"": "", filepath.Join(dir, "kubelet.conf.d"): hints.Restricted, filepath.Join(dir, "none"): hints.None,
	} {
		files := configuration.Files{Config: file, Dir: folder}
		read := newPolicyReader(&Config{Kubelet: files, Log: slog.New(slog.DiscardHandler)})
		if policy := read(); policy != want {
			t.Errorf("drop-ins in %q: the coordinator plans by policy %q, want %q", folder, policy, want)
		}
	}
}
