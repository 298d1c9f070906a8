// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/spelling"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// Source is the origin of a machine: a sysfs root, or a recorded machine.
type Source struct {
	Recording    string // a machine file, or a report of tandem qualify; "" for none
	VFs          int    // VFs to add to each NIC with RDMA of a recording that has none
	SysfsRoot    string
	TopologyFile string // NCCL's; "" for none
}

// Live reports whether this node itself is read.
func (s *Source) Live() bool { return s.Recording == "" }

// IsHere reports whether the source is the machine of this process.
func (s *Source) IsHere() bool { return s.Live() && filepath.Clean(s.SysfsRoot) == "/sys" }

// Name returns the name for errors.
func (s *Source) Name() string {
	if s.Live() {
		return s.SysfsRoot
	}
	return s.Recording
}

// Title returns the name of this node, or of the recorded machine, for people.
func (s *Source) Title() string {
	if !s.Live() {
		return strings.TrimSuffix(filepath.Base(s.Recording), ".txt")
	}
	if name := os.Getenv("NODE_NAME"); name != "" {
		return name // of a pod the host name is another
	}
	name, err := os.Hostname()
	if err != nil {
		return "this node"
	}
	return name
}

func (s *Source) open() (fs.FS, error) {
	if s.Live() {
		return os.DirFS(s.SysfsRoot), nil
	}
	file, err := os.Open(s.Recording)
	if err != nil {
		return nil, fmt.Errorf("read machine: %w%s", err, spelling.Propose(nearFiles(s.Recording)))
	}
	defer file.Close()
	text, err := recorded(file)
	if err != nil {
		return nil, fmt.Errorf("read machine %s: %w", s.Recording, err)
	}
	machine, err := recording.Parse(text)
	if err == nil && s.VFs > 0 {
		machine, err = recording.AddVFs(machine, s.VFs)
	}
	if err != nil {
		return nil, fmt.Errorf("read machine %s: %w", s.Recording, err)
	}
	return machine.FS(), nil
}

// MostReport limits a report of tandem qualify, in bytes: its recording has at most half of them.
const MostReport = 64 << 20

// recorded returns the machine file itself, or the machine in a report of tandem qualify.
func recorded(file io.Reader) (io.Reader, error) {
	text := bufio.NewReader(file)
	if first, err := text.Peek(1); err != nil || first[0] != '{' {
		return text, nil // Parse returns the error
	}
	var report struct {
		Machine []string `json:"machine"`
	}
	if err := json.NewDecoder(io.LimitReader(text, MostReport)).Decode(&report); err != nil {
		return nil, fmt.Errorf("read report of tandem qualify: %w", err)
	}
	return strings.NewReader(strings.Join(report.Machine, "\n")), nil
}

// nearFiles returns the recordings with similar names in the folder of a file, none if the file exists.
func nearFiles(name string) []string {
	dir, base := filepath.Split(name)
	files, _ := filepath.Glob(filepath.Join(dir, "*.txt")) // the error means an odd folder, without proposals
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(file))
	}
	if slices.Contains(names, base) {
		return nil
	}
	nearest := spelling.Nearest(base, names)
	for i := range nearest {
		nearest[i] = filepath.Join(dir, nearest[i])
	}
	return nearest
}

// Placed returns a tree with the functions at the places of a topology file.
func Placed(tree *topology.Tree, file string) (*topology.Tree, error) {
	if file == "" {
		return tree, nil
	}
	f, err := nccl.Load(file)
	if err != nil {
		return nil, err
	}
	return f.Apply(tree)
}
