// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
)

// Files are where the kubelet's configuration is: a file, and a folder of drop-ins, "" for none.
type Files struct {
	Config, Dir string
	Guessed     bool // Config is where kubeadm puts it; else the kubelet does not start without it
}

// path is what a flag names, as it is reached from here; "" for nothing.
func (p Process) path(flag string) string {
	path := p.Flags.last(flag)
	if path == "" {
		return ""
	}
	return filepath.Join(p.Root, "/", path) // systemd starts it in /
}

// RootDir is the folder in which the process has its files.
func (p Process) RootDir() string {
	return cmp.Or(p.path("root-dir"), filepath.Join(p.Root, kubelet.DefaultDir))
}

// Files are those that the process reads; given ones count before them.
func (p Process) Files(given Files, kubeletDir string) Files {
	files := Files{Config: p.path("config"), Dir: p.path("config-dir")}
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

// Default is where kubeadm puts the kubelet's configuration.
func Default(kubeletDir string) string { return filepath.Join(kubeletDir, configuration.FileName) }

// MemoryReservation is the memory of a NUMA node that containers do not get.
type MemoryReservation struct {
	NUMANode int               `json:"numaNode"`
	Limits   map[string]string `json:"limits"`
}

// Settings are the kubelet's, as far as they matter here: keys of KubeletConfiguration
// (k8s.io/kubelet/config/v1beta1).
type Settings struct {
	Read                 bool                `json:"-"` // they are known
	Files                []string            `json:"-"` // that were read, in the kubelet's order
	origin               map[string]string   // key to the file or flag that sets it
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

// Overlay has the content of files that are not on the disk, or are there with another one; nil for one that
// is to be gone.
type Overlay map[string][]byte

func (o Overlay) removes(file string) bool {
	content, laid := o[file]
	return laid && content == nil
}

// Read merges files and flags as the kubelet does. It fails with a [configuration.FileError].
func Read(f Files, flags Flags, overlay Overlay) (Settings, error) {
	s := Settings{
		Policy: "none", Scope: "container", CPUPolicy: "none", MemoryPolicy: "None", origin: map[string]string{},
	}
	dropIns, err := configuration.DropIns(f.Dir)
	if err != nil {
		return Settings{}, err
	}
	dropIns = slices.Concat(dropIns, slices.Collect(maps.Keys(overlay)))
	slices.SortFunc(dropIns, inOrder)
	files := slices.DeleteFunc(slices.Compact(dropIns), overlay.removes)
	if f.Config != "" {
		files = slices.Insert(files, 0, f.Config)
	}
	for _, file := range files {
		err := s.merge(file, overlay)
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

// inOrder compares paths as [filepath.WalkDir] meets them: name by name.
func inOrder(a, b string) int {
	const separator = string(filepath.Separator)
	return slices.Compare(strings.Split(a, separator), strings.Split(b, separator))
}

func (s *Settings) merge(file string, overlay Overlay) (err error) {
	content, laid := overlay[file]
	if !laid {
		if content, err = os.ReadFile(file); err != nil {
			return err
		}
	}
	keys, err := configuration.Decode(content, s)
	for _, key := range keys {
		s.origin[key] = file
	}
	return err
}

// Origin is the file or flag that sets a key, "" for none.
func (s *Settings) Origin(key string) string { return s.origin[key] }

// Says is the evidence for a key: where it is set, or that it is not.
func (s *Settings) Says(key string, value any) string {
	if origin, ok := s.origin[key]; ok {
		return fmt.Sprintf("%s: %s: %v", origin, key, value)
	}
	return fmt.Sprintf("%s: %s is not set, the default is %v", s.Sources(), key, value)
}

// Sources are the files, for people. A kubelet that has none goes by its flags.
func (s *Settings) Sources() string {
	return cmp.Or(strings.Join(s.Files, ", "), "the kubelet's command line")
}

// ReservedAmount is how many CPUs kubeReserved and systemReserved keep from containers (NewManager in
// pkg/kubelet/cm/cpumanager). What is no quantity counts as none.
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

// slack is how exactly the age of a process and the time of a file can be compared.
const slack = 100 * time.Millisecond

// ChangedSince lists the files and folders that have changed after the process started: it may run with other
// settings. A file's times are those of the file and of its place, so that a copy with old times counts.
func (p Process) ChangedSince(now time.Time, files ...string) (changed []string) {
	if p.Age <= 0 || now.IsZero() {
		return nil
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			continue
		}
		age := now.Sub(changeTime(info)) // less than nothing if the clock was set back
		if age >= 0 && age+slack < p.Age {
			changed = append(changed, file)
		}
	}
	return changed
}
