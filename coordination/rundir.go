// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

// RunDir is the default run directory. It is below the kubelet's device plugin directory, which the pod of
// every device plugin mounts, whatever deploys it: no other directory is common to both pods for certain.
// When the kubelet starts it deletes the sockets in that directory, but not subdirectories and their content
// (CleanupPluginDirectory in pkg/kubelet/cm/devicemanager/manager.go).
func RunDir(kubeletDir string) string { return filepath.Join(kubeletDir, "device-plugins", "tandem") }

// told is the run directory in Tandem's own manifests.
const told = "/run/tandem"

// RunDirs are the directories in which the plugins of a node may coordinate, the default first.
func RunDirs(kubeletDir string) []string { return []string{RunDir(kubeletDir), told} }

// FindRunDir returns the run directory of the running plugins: a directory with a server, or with a socket
// that this process may not access; otherwise an existing directory; otherwise the first of RunDirs.
func FindRunDir(kubeletDir string) string {
	places := RunDirs(kubeletDir)
	for _, right := range []func(string) bool{Answers, isThere} {
		for _, dir := range places {
			if right(dir) {
				return dir
			}
		}
	}
	return places[0]
}

// Answers reports whether a plugin serves in a run directory, or may serve there if this process has no right
// to check.
func Answers(runDir string) bool {
	conn, err := net.DialTimeout("unix", SocketPath(runDir), time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil || errors.Is(err, fs.ErrPermission)
}

func isThere(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}
