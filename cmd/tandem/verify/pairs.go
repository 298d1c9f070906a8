// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
)

// comparePairs compares pairs.json, the container's pairs as written by tandem-rdma, with the container's
// devices. The file is optional; err is the error of its reading.
func (r *Verification) comparePairs(tree *topology.Tree, file string, told pairs.File, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		r.PairsFile = "absent"
		return
	}
	failures := len(r.Failures)
	if err != nil {
		r.fail("%v", err)
	}
	for _, pair := range told.Pairs {
		r.compare(tree, file, pair)
	}
	r.PairsFile = "agrees"
	if len(r.Failures) > failures {
		r.PairsFile = "differs"
	}
}

func (r *Verification) compare(tree *topology.Tree, file string, told pairs.Pair) {
	if !slices.ContainsFunc(r.VFs, func(vf VF) bool { return vf.Address == told.VF.Address }) {
		r.fail("%s names the VF %s, and the container does not have it", file, told.VF.Address)
		return
	}
	if told.GPU == nil {
		return
	}
	if !slices.ContainsFunc(r.GPUs, func(g GPU) bool { return g.Address == told.GPU.Address }) {
		r.fail("%s names the GPU %s, and the container does not have it", file, told.GPU.ID)
		return
	}
	if d := tree.Distance(told.GPU.Address, told.VF.Address).Level.String(); d != told.Distance {
		r.fail("%s tells that GPU %s and VF %s are %s apart, and they are %s",
			file, told.GPU.ID, told.VF.Address, told.Distance, d)
	}
}
