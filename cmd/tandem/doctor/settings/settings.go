// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
)

// Files are the paths of the kubelet's configuration: a file and a folder of drop-ins, "" for none.
type Files struct {
	Config, Dir string
	Guessed     bool   // Config is kubeadm's default path, and may be missing
	Name        string // of Config, for people; "" for the path
}

// Shown returns the name of a file for people.
func (f Files) Shown(file string) string {
	if file != f.Config {
		return file
	}
	return cmp.Or(f.Name, file)
}

// path returns the path in a flag, with the prefix of the process; "" for no path.
func (p Process) path(flag string) string {
	path := p.Flags.last(flag)
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
func (p Process) Files(given Files, kubeletDir string) Files {
	files := Files{Config: p.path("config"), Dir: p.path("config-dir"), Name: given.Name}
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

// Default returns kubeadm's path of the kubelet's configuration.
func Default(kubeletDir string) string { return filepath.Join(kubeletDir, configuration.FileName) }

// MemoryReservation is the reserved memory of a NUMA node.
type MemoryReservation struct {
	NUMANode int               `json:"numaNode"`
	Limits   map[string]string `json:"limits"`
}

// Settings are the settings of the kubelet that doctor checks: keys of KubeletConfiguration
// (k8s.io/kubelet/config/v1beta1).
type Settings struct {
	Read                 bool                `json:"-"` // the settings are known
	Files                []string            `json:"-"` // files with settings, in the kubelet's order
	at                   Files               // the files that were read
	origin               map[string]string   // source of each key, a file or flag
	Policy               string              `json:"topologyManagerPolicy"`
	Scope                string              `json:"topologyManagerScope"`
	PolicyOptions        map[string]string   `json:"topologyManagerPolicyOptions"`
	CPUPolicy            string              `json:"cpuManagerPolicy"`
	CPUOptions           map[string]string   `json:"cpuManagerPolicyOptions"`
	ReservedCPUs         string              `json:"reservedSystemCPUs"`
	KubeReserved         map[string]string   `json:"kubeReserved"`
	KubeReservedCgroup   string              `json:"kubeReservedCgroup"`
	SystemReserved       map[string]string   `json:"systemReserved"`
	SystemReservedCgroup string              `json:"systemReservedCgroup"`
	MemoryPolicy         string              `json:"memoryManagerPolicy"`
	ReservedMemory       []MemoryReservation `json:"reservedMemory"`
}

// Read merges files and flags as the kubelet does. It fails with a [configuration.FileError].
func Read(f Files, flags Flags) (Settings, error) {
	s := Settings{
		Policy: "none", Scope: "container", CPUPolicy: "none", MemoryPolicy: "None", at: f,
		origin: map[string]string{},
	}
	files, err := configuration.DropIns(f.Dir)
	if err != nil {
		return Settings{}, err
	}
	if f.Config != "" {
		files = slices.Insert(files, 0, f.Config)
	}
	for _, file := range files {
		err := s.merge(file)
		if errors.Is(err, fs.ErrNotExist) && f.Guessed && file == f.Config {
			continue
		}
		if err != nil {
			return Settings{}, &configuration.FileError{File: file, Err: err}
		}
		s.Files = append(s.Files, file)
	}
	if s.Read = len(s.Files) > 0 || f.Config == "" || f.Guessed && f.Dir != ""; !s.Read {
		return s, &configuration.FileError{File: f.Config, Err: fs.ErrNotExist}
	}
	s.override(flags)
	return s, nil
}

func (s *Settings) merge(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	keys, err := configuration.Decode(content, s)
	for _, key := range keys {
		s.origin[key] = file
	}
	return err
}

// Origin returns the file or flag that sets a key, "" for none.
func (s *Settings) Origin(key string) string { return s.origin[key] }

// Says returns the evidence for a key: the source of the value, or the default.
func (s *Settings) Says(key string, value any) string {
	if origin, ok := s.origin[key]; ok {
		return fmt.Sprintf("%s: %s: %v", s.at.Shown(origin), key, value)
	}
	return fmt.Sprintf("%s: %s is not set, the default is %v", s.Sources(), key, value)
}

// Sources returns the files, for people, or the command line of a kubelet without files.
func (s *Settings) Sources() string {
	var names []string
	for _, file := range s.Files {
		names = append(names, s.at.Shown(file))
	}
	return cmp.Or(strings.Join(names, ", "), "the kubelet's command line")
}

// ReservedAmount returns the number of CPUs in kubeReserved and systemReserved (NewManager in
// pkg/kubelet/cm/cpumanager). An invalid quantity counts as zero.
func (s *Settings) ReservedAmount() int {
	var milli int64
	for _, reserved := range []map[string]string{s.KubeReserved, s.SystemReserved} {
		if quantity, err := resource.ParseQuantity(reserved["cpu"]); err == nil {
			milli += quantity.MilliValue()
		}
	}
	const core = 1000
	return int((milli + core - 1) / core)
}

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
