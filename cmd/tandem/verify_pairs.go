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

// pairsFile is pairs.json, in which tandem-rdma tells a container its pairs, as far as it can be checked.
type pairsFile struct {
	Pairs []toldPair `json:"pairs"`
}

type toldPair struct {
	GPU      *toldDevice    `json:"gpu"` // null in a container without GPUs
	VF       toldDevice     `json:"vf"`
	Distance topology.Level `json:"distance"`
}

type toldDevice struct {
	ID      string           `json:"id"` // the kubelet's device ID: a UUID, an address, the name of a partition
	Address topology.Address `json:"address"`
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
	var told pairsFile
	if err := json.Unmarshal(content, &told); err != nil {
		r.fail("%s cannot be read: %v", v.pairsFile, err)
	}
	for _, pair := range told.Pairs {
		r.compare(tree, v.pairsFile, pair)
	}
	r.PairsFile = "agrees"
	if len(r.Failures) > failures {
		r.PairsFile = "differs"
	}
	return nil
}

func (r *verification) compare(tree *topology.Tree, file string, told toldPair) {
	if !slices.ContainsFunc(r.VFs, func(vf containerVF) bool { return vf.Address == told.VF.Address }) {
		r.fail("%s names the VF %s, and the container does not have it", file, told.VF.Address)
		return
	}
	if told.GPU == nil {
		return
	}
	if !slices.ContainsFunc(r.GPUs, func(g containerGPU) bool { return g.Address == told.GPU.Address }) {
		r.fail("%s names the GPU %s, and the container does not have it", file, told.GPU.ID)
		return
	}
	if d := tree.Distance(told.GPU.Address, told.VF.Address).Level; d != told.Distance {
		r.fail("%s tells that GPU %s and VF %s are %s apart, and they are %s", file, told.GPU.ID, told.VF.Address, told.Distance, d)
	}
}
