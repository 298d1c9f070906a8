package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// toldPair is an entry of pairs.json, in which tandem-rdma tells a container its pairs, as far as it can be checked.
type toldPair struct {
	GPU      string         `json:"gpu"` // address, device ID or UUID
	VF       string         `json:"vf"`
	Distance topology.Level `json:"distance"`
}

// comparePairs checks that what pairs.json tells is what the container has. Without the file nothing is told.
func (v *verifier) comparePairs(tree *topology.Tree, r *verification) error {
	content, err := os.ReadFile(v.pairsFile)
	if errors.Is(err, fs.ErrNotExist) {
		r.PairsFile = "absent"
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the pairs that the container was told: %w", err)
	}
	failures := len(r.Failures)
	var told []toldPair
	if err := json.Unmarshal(content, &told); err != nil {
		r.fail("%s cannot be read: %v", v.pairsFile, err)
	}
	for _, pair := range told {
		r.compare(tree, v.pairsFile, pair)
	}
	r.PairsFile = "agrees"
	if len(r.Failures) > failures {
		r.PairsFile = "differs"
	}
	return nil
}

func (r *verification) compare(tree *topology.Tree, file string, told toldPair) {
	g := slices.IndexFunc(r.GPUs, func(g containerGPU) bool {
		return told.GPU == g.ID || told.GPU == g.Address.String() || told.GPU == g.UUID
	})
	vf := slices.IndexFunc(r.VFs, func(vf containerVF) bool { return told.VF == vf.Address.String() })
	if g < 0 || vf < 0 {
		r.fail("%s pairs GPU %q with VF %q, and the container does not have both", file, told.GPU, told.VF)
		return
	}
	if d := tree.Distance(r.GPUs[g].Address, r.VFs[vf].Address).Level; d != told.Distance {
		r.fail("%s tells that GPU %s and VF %s are %s apart, and they are %s", file, told.GPU, told.VF, told.Distance, d)
	}
}
