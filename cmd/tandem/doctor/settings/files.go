// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"os"
	"path/filepath"
	"time"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// path returns the path in a flag, with the prefix of the process; "" for no path.
func (p Process) path(flag string) string {
	path := p.Flags.Last(flag)
	if path == "" {
		return ""
	}
	return filepath.Join(p.Root, "/", path) // systemd starts it in /
}

// RootDir returns the root folder of the process (--root-dir).
func (p Process) RootDir() string {
	return cmp.Or(p.path("root-dir"), filepath.Join(p.Root, kubelet.DefaultDir))
}

// Files returns the files that the process reads; paths in the argument take precedence.
func (p Process) Files(given kubelet.ConfigFiles, kubeletDir string) kubelet.ConfigFiles {
	files := kubelet.ConfigFiles{
		Config: p.path("config"), Dir: p.path("config-dir"), Name: given.Name, Root: p.Root,
	}
	if given.Config != "" {
		files.Config = given.Config
	}
	if given.Dir != "" {
		files.Dir = given.Dir
	}
	if files.Config == "" && p.PID == "" {
		files.Config, files.Guessed = Default(kubeletDir), true
	}
	return files
}

// Read reads the settings of the kubelet with a root folder: by its process, or without one by the usual
// file alone.
func Read(procRoot, kubeletDir string) (kubelet.Settings, error) {
	p, err := FindProcess(procRoot)
	if err != nil {
		return kubelet.Settings{}, err
	}
	its, err := os.Stat(p.RootDir())
	if folder, other := os.Stat(kubeletDir); err != nil || other != nil || !os.SameFile(its, folder) {
		p = Process{}
	}
	return kubelet.ReadSettings(p.Files(kubelet.ConfigFiles{}, kubeletDir), p.Flags)
}

// Default returns kubeadm's path of the kubelet's configuration.
func Default(kubeletDir string) string { return filepath.Join(kubeletDir, kubelet.ConfigFile) }

// slack is the precision of comparisons between the age of a process and the time of a file.
const slack = 100 * time.Millisecond

// ChangedSince returns the files and folders that changed after the start of the process, which may run with
// older settings. The status change time also counts, so that a copy with an old modification time is found.
func (p Process) ChangedSince(now time.Time, files ...string) (changed []string) {
	if p.Age <= 0 || now.IsZero() {
		return nil
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			continue
		}
		age := now.Sub(changeTime(info)) // negative after the clock was set back
		if age >= 0 && age+slack < p.Age {
			changed = append(changed, file)
		}
	}
	return changed
}
