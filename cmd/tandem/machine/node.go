// SPDX-License-Identifier: Apache-2.0

// Package machine reads a machine for the commands, from this node or from a recording: its devices as the
// plugins offer them, the distances of GPUs and NICs as a matrix and a picture, and the devices that the
// plugins, or the stock plugins, prefer for a container, the running kubelet.
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

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/spelling"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
	"github.com/tandem-k8s/tandem/topology/recording"
)

// Node is a machine as sysfs describes it, for GPUs of any vendor; AskVRAM adds data that sysfs lacks.
type Node struct {
	Sys   fs.FS
	Tree  *topology.Tree
	GPUs  []*topology.Device // ascending by address
	NICs  []*topology.Device // network functions other than VFs, ascending by address
	Parts map[topology.Address][]gpu.Device
	Links []topology.Link
	vram  map[topology.Address]uint64 // bytes; absent if unknown
	mixed map[string][]gpu.Device     // parts by resource
	Notes []string                    // optional parts that could not be read
	// Kubelet is the kubelet of a node that follows the documents, unless somebody has read another one.
	Kubelet model.Kubelet
	Stock   bool // the stock plugin offers the VFs: a pool has hints unless excludeTopology is true

	from  *Source
	sysfs *topology.Tree // without the places of a topology file
}

// advised are the settings that the documents advise.
var advised = model.Kubelet{
	TopologyManagerPolicy: string(model.Restricted), CPUManagerPolicy: "static", MemoryManagerPolicy: "None",
}

// mostCards is how many GPUs, and how many NICs, a machine may have: each is compared with each.
const mostCards = 1024

// Read reads the machine. An unreadable optional part becomes a note.
func Read(s *Source) (*Node, error) {
	sys, err := s.openFS()
	if err != nil {
		return nil, err
	}
	return ReadFS(sys, s)
}

// ReadFS reads the machine of a sysfs, which the source describes.
func ReadFS(sys fs.FS, s *Source) (*Node, error) {
	read, err := topology.Read(sys)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.Name(), err)
	}
	tree, err := PlaceFunctions(read, s.TopologyFile)
	if err != nil {
		return nil, err
	}
	n := &Node{
		Sys: sys, Tree: tree, Parts: map[topology.Address][]gpu.Device{}, vram: map[topology.Address]uint64{},
		mixed: map[string][]gpu.Device{}, Kubelet: advised, from: s, sysfs: read,
	}
	var managers []string
	for d := range tree.Devices() {
		switch {
		case gpu.Vendor(d) != "":
			n.GPUs = append(n.GPUs, d)
		case d.IsNIC() && !d.IsVF():
			n.NICs = append(n.NICs, d)
		case d.ManagesNVSwitches:
			managers = append(managers, d.Address.String())
		}
	}
	if len(n.GPUs) > mostCards || len(n.NICs) > mostCards {
		return nil, fmt.Errorf("read %s: it has %d GPUs and %d NICs, and %d of each are the most that are compared",
			s.Name(), len(n.GPUs), len(n.NICs), mostCards)
	}
	n.noteUnread()
	if len(managers) > 0 {
		const no = "left out, because they manage NVSwitches and are no NICs: "
		n.Notes = append(n.Notes, no+strings.Join(managers, ", "))
	}
	n.readAMD()
	return n, nil
}

// noteUnread notes the GPUs whose near NIC is unknown.
func (n *Node) noteUnread() {
	var gpus []string
	for _, c := range n.Tree.Complexes() {
		if c.Unread {
			for _, gpu := range c.GPUs {
				gpus = append(gpus, gpu.String())
			}
		}
	}
	if len(gpus) > 0 {
		n.Notes = append(n.Notes, fmt.Sprintf("a NIC may be nearer than shown to GPU %s: Vital Product Data is "+
			"unread, which names the NIC of a DMA function; run or record as root", strings.Join(gpus, ", ")))
	}
}

// readAMD reads the memory, the partitions and the links of AMD's GPUs; sysfs has none of NVIDIA's, only NVML
// has. Errors are notes, because the matrix is right without a driver too.
func (n *Node) readAMD() {
	if !amd.IsLoaded(n.Sys) {
		return
	}
	for _, d := range n.GPUs {
		switch bytes, err := amd.ReadVRAM(n.Sys, d.Address); {
		case err != nil:
			n.Notes = append(n.Notes, err.Error())
		case bytes > 0:
			n.vram[d.Address] = bytes
		}
	}
	links, err := amd.ReadLinks(n.Sys)
	if err != nil {
		n.Notes = append(n.Notes, err.Error())
	}
	n.Links = append(n.Links, links...)
	inventory, err := amd.Read(n.Sys, amd.Mixed)
	if err != nil {
		n.Notes = append(n.Notes, err.Error())
	}
	for name, devices := range inventory.Resources {
		n.mixed[name] = devices
		for _, d := range devices {
			n.Parts[d.Card] = append(n.Parts[d.Card], d)
		}
	}
}

// AskVRAM asks the running plugins for the memory of NVIDIA's GPUs, which sysfs lacks. Without plugins, or
// without permission, the memory stays unknown.
func (n *Node) AskVRAM(ask func() (*api.StatusResponse, error)) {
	if !slices.ContainsFunc(n.GPUs, func(d *topology.Device) bool { return n.vram[d.Address] == 0 }) {
		return
	}
	answer, err := ask()
	if err != nil {
		return
	}
	for _, r := range answer.GetResources() {
		for _, d := range r.GetDevices() {
			address, err := topology.ParseAddress(d.GetDevice().GetAddress())
			if bytes := d.GetDevice().GetVram(); err == nil && bytes > 0 {
				n.vram[address] = bytes
			}
		}
	}
}

// RDMANICs returns the PFs with an RDMA device.
func (n *Node) RDMANICs() []*topology.Device {
	return slices.DeleteFunc(slices.Clone(n.NICs), func(d *topology.Device) bool { return len(d.RDMA) == 0 })
}

// VRAM returns the size of a GPU's memory in bytes for JSON: nil if unknown.
func (n *Node) VRAM(gpu topology.Address) *uint64 {
	if bytes, known := n.vram[gpu]; known {
		return &bytes
	}
	return nil
}

// Source is the origin of a machine: a sysfs root, or a recorded machine.
type Source struct {
	Recording    string // a machine file, or a report of tandem qualify; "" for none
	VFs          int    // VFs to add to each NIC with RDMA of a recording that has none
	SysfsRoot    string
	TopologyFile string // NCCL's; "" for none
}

// RegisterFlags adds the flags of commands that read this node or a recorded machine.
func (s *Source) RegisterFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.Recording, "machine", "", "recorded machine, a file of tandem record or tandem qualify")
	flags.StringVar(&s.SysfsRoot, "sysfs-root", "/sys", "root of sysfs")
	cli.RegisterTopologyFile(flags, &s.TopologyFile)
	cli.CompleteMachines(cmd)
}

// IsLive reports whether this node itself is read.
func (s *Source) IsLive() bool { return s.Recording == "" }

// IsHere reports whether the source is the machine of this process.
func (s *Source) IsHere() bool { return s.IsLive() && filepath.Clean(s.SysfsRoot) == "/sys" }

// Name returns the name for errors.
func (s *Source) Name() string {
	if s.IsLive() {
		return s.SysfsRoot
	}
	return s.Recording
}

// Title returns the name of this node, or of the recorded machine, for people.
func (s *Source) Title() string {
	if !s.IsLive() {
		return strings.TrimSuffix(filepath.Base(s.Recording), ending)
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

func (s *Source) openFS() (fs.FS, error) {
	if s.IsLive() {
		return os.DirFS(s.SysfsRoot), nil
	}
	file, err := os.Open(s.Recording)
	if err != nil {
		return nil, fmt.Errorf("read machine: %w%s", err, spelling.Propose(nearFiles(s.Recording)))
	}
	defer file.Close()
	text, err := readRecording(file)
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

// readRecording returns the machine file itself, or the machine in a report of tandem qualify.
func readRecording(file io.Reader) (io.Reader, error) {
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

// ending is that of the files of tandem record.
const ending = ".txt"

// nearFiles returns the recordings with similar names in the folder of a file, none if the file exists. The
// name may lack the ending.
func nearFiles(name string) []string {
	dir, base := filepath.Split(name)
	files, _ := filepath.Glob(filepath.Join(dir, "*"+ending)) // the error means an odd folder, without proposals
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ending))
	}
	if slices.Contains(files, name) {
		return nil
	}
	nearest := spelling.Nearest(strings.TrimSuffix(base, ending), names)
	for i := range nearest {
		nearest[i] = filepath.Join(dir, nearest[i]) + ending
	}
	return nearest
}

// PlaceFunctions returns a tree with the functions at the places of a topology file.
func PlaceFunctions(tree *topology.Tree, file string) (*topology.Tree, error) {
	if file == "" {
		return tree, nil
	}
	f, err := nccl.Load(file)
	if err != nil {
		return nil, err
	}
	return f.Apply(tree)
}
