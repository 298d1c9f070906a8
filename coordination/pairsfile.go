package coordination

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/tandem-k8s/tandem/topology"
)

// PairsFile is what a container finds in /run/tandem/pairs.json: its GPUs with the VFs that serve them, in the order in which
// both are listed to it. Keys are added to it, never changed.
type PairsFile struct {
	Version int    `json:"version"` // 1
	Pairs   []Pair `json:"pairs"`
}

const pairsVersion = 1

// Pair is a VF with a GPU that it serves. Where there are more of one than of the other, some are named several times.
type Pair struct {
	GPU      *PairGPU          `json:"gpu"` // null in a container without GPUs
	VF       PairVF            `json:"vf"`
	Distance string            `json:"distance,omitempty"` // PIX to SYS, UNK
	Bridges  int               `json:"bridges,omitempty"`  // between the two
	Switch   *topology.Address `json:"switch,omitempty"`   // the lowest bridge above both
}

// PairGPU is a GPU of a container.
type PairGPU struct {
	ID       string           `json:"id"` // the kubelet's device ID: a UUID, an address, the name of a partition
	Address  topology.Address `json:"address"`
	Resource string           `json:"resource"`
}

// PairVF is a VF of a container.
type PairVF struct {
	ID       string           `json:"id"`
	Address  topology.Address `json:"address"`
	Resource string           `json:"resource"`
	RDMA     string           `json:"rdma,omitempty"`   // "mlx5_5"
	Netdev   string           `json:"netdev,omitempty"` // as the node called it; CNI plugins rename it
}

// NewPairsFile makes the pairs file of a container of which no GPU is known.
func NewPairsFile(vfs []PairVF) PairsFile {
	file := PairsFile{Version: pairsVersion, Pairs: []Pair{}}
	for _, vf := range vfs {
		file.Pairs = append(file.Pairs, Pair{VF: vf})
	}
	return file
}

// ReadPairs reads a pairs file.
func ReadPairs(file string) (PairsFile, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return PairsFile{}, fmt.Errorf("read pairs: %w", err)
	}
	var p PairsFile
	if err := json.Unmarshal(content, &p); err != nil {
		return PairsFile{}, fmt.Errorf("parse pairs in %s: %w", file, err)
	}
	return p, nil
}

// Write puts a pairs file in place. A container that runs keeps the file that it was started with; one that starts gets this one.
func (p PairsFile) Write(file string) error {
	content, err := json.MarshalIndent(p, "", "  ")
	if err == nil {
		err = ReplaceFile(file, append(content, '\n'), 0o444)
	}
	if err != nil {
		return fmt.Errorf("write pairs: %w", err)
	}
	return nil
}
