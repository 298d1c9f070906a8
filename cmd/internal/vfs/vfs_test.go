// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"testing"
	"testing/fstest"
)

// The mounts of the stock plugins' pods distinguish the plugins.
func TestConfigFile(t *testing.T) {
	t.Attr("parity", "shared/flags")
	const inPod, shared = "etc/pcidp/config.json", "k8s-rdma-shared-dev-plugin/config.json"
	for _, c := range []struct {
		mounted []string
		want    string
	}{
		{nil, inPod},
		{[]string{inPod}, inPod},
		{[]string{shared}, shared},
		{[]string{inPod, shared}, inPod},
	} {
		root := fstest.MapFS{}
		for _, file := range c.mounted {
			root[file] = &fstest.MapFile{}
		}
		if got := configFile(root); got != "/"+c.want {
			t.Errorf("with %q the configuration is %s, want /%s", c.mounted, got, c.want)
		}
	}
}
