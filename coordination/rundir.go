package coordination

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

// RunDir is the run folder of plugins that were not told one. It lies below the kubelet's folder for device
// plugins, which the pod of every device plugin mounts, whoever deploys it: two pods have no other folder in
// common for certain. When the kubelet starts it deletes the sockets in that folder, but neither folders in
// it nor what they hold (CleanupPluginDirectory in pkg/kubelet/cm/devicemanager/manager.go).
func RunDir(kubeletDir string) string { return filepath.Join(kubeletDir, "device-plugins", "tandem") }

// told is the run folder that Tandem's own manifests tell the plugins.
const told = "/run/tandem"

// RunDirs are the folders in which plugins may meet on a node, the one that needs no telling first.
func RunDirs(kubeletDir string) []string { return []string{RunDir(kubeletDir), told} }

// FindRunDir finds the run folder of the plugins that run: one in which somebody answers, or whose socket may
// not be asked; else one that is there; else the first of RunDirs.
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

// Answers reports whether a plugin serves in a run folder, or may do so: who asks has no right to see it.
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
