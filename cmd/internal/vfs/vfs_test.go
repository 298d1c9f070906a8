package main

import (
	"testing"
	"testing/fstest"
)

// The pods of the stock plugins are told apart by what they mount.
func TestConfigFile(t *testing.T) {
	t.Attr("parity", "shared/flags")
	const vfs, shared = "etc/pcidp/config.json", "k8s-rdma-shared-dev-plugin/config.json"
	for _, c := range []struct {
		mounted []string
		want    string
	}{
		{nil, vfs},
		{[]string{vfs}, vfs},
		{[]string{shared}, shared},
		{[]string{vfs, shared}, vfs},
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
