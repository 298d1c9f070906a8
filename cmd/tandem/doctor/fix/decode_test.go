// SPDX-License-Identifier: Apache-2.0

package fix_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/fix"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
)

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// TestWrongConfigurations: what is wrong with a file is said once, with the file and the line.
func TestWrongConfigurations(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		header + "topologyManagerPolicyOptions: [a]\n": "line 3: the value of topologyManagerPolicyOptions " +
			"cannot be an array",
		header + "topologyManagerPolicy: [\n":               "yaml: line 3: did not find expected node content",
		header + "topologyManagerScope: 'pod\nmaxPods: 1\n": "yaml: line 3: found unexpected end of stream",
		header + "maxPods: 110\ntopologyManagerPolicy: {a: b}\n": "line 4: the value of topologyManagerPolicy " +
			"cannot be an object",
		"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n": "" +
			"it is no KubeletConfiguration of kubelet.config.k8s.io/v1beta1: " +
			"its kind is KubeProxyConfiguration, its apiVersion kubeproxy.config.k8s.io/v1alpha1",
		"apiVersion: kubelet.config.k8s.io/v2\nkind: KubeletConfiguration\n": "it is no KubeletConfiguration of " +
			"kubelet.config.k8s.io/v1beta1: its kind is KubeletConfiguration, its apiVersion kubelet.config.k8s.io/v2",
		"maxPods: 110\n": "it is no KubeletConfiguration of kubelet.config.k8s.io/v1beta1: its kind is none, " +
			"its apiVersion none",
		"{\"kind\": \"Config\", \"apiVersion\": \"v1\"}": "it is no KubeletConfiguration of " +
			"kubelet.config.k8s.io/v1beta1: its kind is Config, its apiVersion v1",
		"just words\n": "it is no object of keys and values",
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := fix.Run(io.Discard, managers.Node{KubeletDir: dir}, fix.Change{})
		if err == nil || err.Error() != "read the kubelet's configuration: "+file+": "+want {
			t.Errorf("%q: %v, want %q", strings.TrimPrefix(content, header), err, want)
		}
	}
}
