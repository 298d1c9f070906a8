package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// source is where a command reads the machine: a sysfs root, or a recorded machine.
type source struct {
	machine      string
	sysfsRoot    string
	topologyFile string // NCCL's; "" for none
}

func (s *source) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.machine, "machine", "", "recorded machine to read, a file that tandem record wrote")
	flags.StringVar(&s.sysfsRoot, "sysfs-root", "/sys", "folder to read the machine from")
	registerTopologyFile(flags, &s.topologyFile)
}

func registerTopologyFile(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "topology-file", "", "topology file of NCCL (NCCL_TOPO_FILE) that says which devices share a switch, where sysfs does not tell")
}

// placed is a tree with its functions where a topology file has them.
func placed(tree *topology.Tree, file string) (*topology.Tree, error) {
	if file == "" {
		return tree, nil
	}
	f, err := nccl.Load(file)
	if err != nil {
		return nil, err
	}
	return f.Apply(tree)
}

// check refuses two sources at once.
func (s *source) check(flags *pflag.FlagSet) error {
	if flags.Changed("machine") && flags.Changed("sysfs-root") {
		return usage("--machine and --sysfs-root exclude each other")
	}
	return nil
}

// live reports whether this node itself is read.
func (s *source) live() bool { return s.machine == "" }

// isHere reports whether it is the machine that this process runs on.
func (s *source) isHere() bool { return s.live() && filepath.Clean(s.sysfsRoot) == "/sys" }

// name is for errors.
func (s *source) name() string {
	if s.live() {
		return s.sysfsRoot
	}
	return s.machine
}

// title is for people: the name of this node, or of the recorded machine.
func (s *source) title() string {
	if !s.live() {
		return strings.TrimSuffix(filepath.Base(s.machine), ".txt")
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

func (s *source) open() (fs.FS, error) {
	if s.live() {
		return os.DirFS(s.sysfsRoot), nil
	}
	file, err := os.Open(s.machine)
	if err != nil {
		return nil, fmt.Errorf("read machine: %w", err)
	}
	defer file.Close()
	machine, err := recording.Parse(file)
	if err != nil {
		return nil, fmt.Errorf("read machine %s: %w", s.machine, err)
	}
	return machine.FS(), nil
}
