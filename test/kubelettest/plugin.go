// SPDX-License-Identifier: Apache-2.0

package kubelettest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/tandem-k8s/tandem/test/playground/kubelet"
)

// Plugin is a registered device plugin.
type Plugin = kubelet.Plugin

// AwaitRemoved waits until a plugin has removed its socket.
func AwaitRemoved(t testing.TB, p *Plugin) {
	t.Helper()
	folder, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = folder.Close() }()
	if err := folder.Add(filepath.Dir(p.Socket)); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Lstat(p.Socket); errors.Is(err, fs.ErrNotExist) {
			return
		}
		Await(t, folder.Events)
	}
}
