// SPDX-License-Identifier: Apache-2.0

// Package verify checks, inside a container, that its GPUs and VFs are on the same switches. With --traffic
// it measures the bandwidth and latency of each pair with perftest, and judges the results. The programs of
// perftest (ib_write_bw and ib_read_lat) are part of the container's image; the package starts them, one pair
// after another, and reads their output.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// Check has the requirements of a container, and its view of its devices.
type Check struct {
	Environment []string // "NAME=value"
	SysfsRoot   string
	DevRoot     string
	ProcRoot    string

	GPUs, VFs int            // -1 for any number
	PairsFile string         // the container's pairs, written by the plugins; optional
	Within    topology.Level // greatest accepted distance of a pair
	InOrder   bool           // the i-th VF has to pair with the i-th GPU
	Topology  string         // a topology file; "" for none
	Traffic   *trafficPlan   // nil for no traffic
}

// Run examines the container, and measures the traffic of its pairs if the Check has a plan for traffic. It
// returns an error only if the container cannot be read or nothing can be measured; other problems are in the
// Verification.
func (v *Check) Run(ctx context.Context) (*Verification, error) {
	sys := os.DirFS(v.SysfsRoot)
	tree, err := topology.Read(sys)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", v.SysfsRoot, err)
	}
	tree, err = machine.PlaceFunctions(tree, v.Topology)
	if err != nil {
		return nil, err
	}
	r := &Verification{GPUs: []GPU{}, VFs: []VF{}, Pairs: []machine.Pair{}, Failures: []string{}}
	if err := v.findDevices(sys, tree, r); err != nil {
		return nil, err
	}
	r.countDevices("GPU", len(r.GPUs), v.GPUs, "no device node of one is in "+v.DevRoot)
	r.countDevices("VF", len(r.VFs), v.VFs, "no environment variable PCIDEVICE_* names one; "+
		"request a resource of VFs under limits, such as tandem.dev/rdma_vf: 1 (tandem status on the node "+
		"lists the names); a shell may drop names with a hyphen: run tandem verify without one")
	told, readErr := pairs.Read(v.PairsFile)
	tree = r.trustPairs(tree, told)
	if err := r.pairDevices(tree, v.Within); err != nil {
		return nil, err
	}
	r.InOrder = r.isOrdered(tree, v.Within)
	if v.InOrder && !r.InOrder {
		r.fail("the i-th VF does not pair with the i-th GPU: compare the two lists")
	}
	r.comparePairs(tree, v.PairsFile, told, readErr)
	if v.Traffic != nil && (len(r.VFs) > 0 || v.VFs == 0) { // a missing VF is a failure already
		r.Traffic, err = v.Traffic.Run(ctx, r.trafficEnds(sys, tree))
		if err == nil {
			r.Failures = append(r.Failures, r.Traffic.Failures...)
		}
	}
	return r, err
}

// trafficEnds returns the VFs with the GPUs of their pairs. An HCA that pairs with several GPUs is in as many
// pairs.
func (r *Verification) trafficEnds(sys fs.FS, tree *topology.Tree) (ends []trafficEnd) {
	pairs := slices.Clone(r.Pairs)
	for _, vf := range r.VFs {
		var gpu *GPU
		i := slices.IndexFunc(pairs, func(p machine.Pair) bool { return p.VF == vf.Address.String() })
		if i >= 0 {
			of := slices.IndexFunc(r.GPUs, func(g GPU) bool { return g.ID == pairs[i].GPU })
			gpu, pairs = &r.GPUs[of], slices.Delete(pairs, i, i+1)
		}
		ends = append(ends, newEnd(sys, tree, vf.Address, gpu))
	}
	return ends
}

func (r *Verification) countDevices(what string, got, want int, why string) {
	switch {
	case got == 0 && want != 0:
		r.fail("the container has no %s: %s", what, why)
	case want >= 0 && got != want:
		r.fail("the container has %s instead of %d", cli.Count(got, what), want)
	}
}

// pairDevices finds the best pairs of the container's devices, all of which must be near.
func (r *Verification) pairDevices(tree *topology.Tree, within topology.Level) error {
	var gpus, vfs placement.Half
	for _, g := range r.GPUs {
		gpus.Held = append(gpus.Held, placement.Device{ID: g.ID, Address: g.Address})
	}
	for _, vf := range r.VFs {
		vfs.Held = append(vfs.Held, placement.Device{ID: vf.Address.String(), Address: vf.Address})
	}
	choice, err := placement.Choose(tree, placement.Request{
		GPUs: []placement.Half{gpus}, VFs: []placement.Half{vfs},
	})
	if err != nil {
		return fmt.Errorf("pair the container's devices: %w", err)
	}
	for _, p := range choice.Pairs {
		function, unknown := tree.UnreadFunction(p.GPU.Address, p.VF.Address)
		if unknown {
			p.Distance.Level = topology.UNK
		}
		r.Pairs = append(r.Pairs, machine.NewPair(p))
		switch {
		case unknown:
			r.fail("the distance of GPU %s and VF %s is unknown: DMA function %s may belong to the NIC, and only "+
				"root reads keyword V3 of their vpd files; pairs.json has the distance (\"pairs\": true in the pool)",
				p.GPU.ID, p.VF.ID, function)
		case p.Distance.Level > within:
			r.fail("GPU %s and VF %s are %s apart, farther than %s", p.GPU.ID, p.VF.ID, p.Distance.Level,
				acceptedLevel(tree, within))
		}
	}
	return nil
}

// acceptedLevel returns the accepted distance for people. C2C is a distance of Grace and Vera only; on other
// machines the next nearer one is the same limit.
func acceptedLevel(tree *topology.Tree, within topology.Level) topology.Level {
	overC2C := func(c topology.Complex) bool { return c.Kind == topology.KindC2C }
	if within == topology.C2C && !slices.ContainsFunc(tree.Complexes(), overC2C) {
		return topology.PXB
	}
	return within
}

// isOrdered reports whether both lists side by side have as many near pairs as the best pairs.
func (r *Verification) isOrdered(tree *topology.Tree, within topology.Level) bool {
	if len(r.GPUs) == 0 || len(r.GPUs) != len(r.VFs) {
		return false
	}
	met, near := 0, 0
	for i, g := range r.GPUs {
		if tree.Distance(g.Address, r.VFs[i].Address).Level <= within {
			met++
		}
	}
	for _, p := range r.Pairs {
		if p.Distance <= within {
			near++
		}
	}
	return met == near
}

// comparePairs compares pairs.json, the container's pairs as written by tandem-rdma, with the container's
// devices. The file is optional; err is the error of its reading.
func (r *Verification) comparePairs(tree *topology.Tree, file string, told pairs.File, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		r.PairsFile = "absent"
		return
	}
	failures := len(r.Failures)
	switch {
	case err != nil:
		r.fail("%v", err)
	case len(told.Pairs) == 0 && len(r.VFs) > 0:
		r.fail("%s names none of the container's VFs", file)
	}
	for _, pair := range told.Pairs {
		vf, gpu := pair.VF.Address, pair.GPU
		switch {
		case !slices.ContainsFunc(r.VFs, func(has VF) bool { return has.Address == vf }):
			r.fail("%s names the VF %s, and the container does not have it", file, vf)
		case gpu == nil:
		case !slices.ContainsFunc(r.GPUs, func(has GPU) bool { return has.Address == gpu.Address }):
			r.fail("%s names the GPU %s, and the container does not have it", file, gpu.ID)
		default:
			if d := tree.Distance(gpu.Address, vf).Level.String(); d != pair.Distance {
				r.fail("%s tells that GPU %s and VF %s are %s apart, and they are %s", file, gpu.ID, vf,
					pair.Distance, d)
			}
		}
	}
	switch {
	case len(r.Failures) > failures:
		r.PairsFile = "differs"
	case slices.ContainsFunc(r.VFs, func(vf VF) bool { return !namesVF(told, vf.Address) }):
		r.PairsFile = "partial"
	default:
		r.PairsFile = "agrees"
	}
}

// namesVF reports whether a pairs file names a VF.
func namesVF(told pairs.File, vf topology.Address) bool {
	return slices.ContainsFunc(told.Pairs, func(p pairs.Pair) bool { return p.VF.Address == vf })
}

// trustPairs returns the tree with the NICs of a pairs file below the DMA functions of their GPUs, as far as
// this process cannot read the assignment. The daemon, which reads the vpd files as root, wrote the file.
func (r *Verification) trustPairs(tree *topology.Tree, told pairs.File) *topology.Tree {
	moved := map[topology.Address]topology.Place{}
	for _, pair := range told.Pairs {
		if pair.GPU == nil || pair.Distance != topology.PIX.String() && pair.Distance != topology.PXB.String() {
			continue
		}
		function, is := tree.UnreadFunction(pair.GPU.Address, pair.VF.Address)
		if !is {
			continue
		}
		d, _ := tree.Device(pair.VF.Address)
		moved[d.Function()], _ = tree.Place(function)
		r.Trusted = append(r.Trusted, fmt.Sprintf("GPU %s, VF %s: %s", pair.GPU.Address, pair.VF.Address,
			pair.Distance))
	}
	if len(moved) == 0 {
		return tree
	}
	return tree.Move(moved)
}

// Verification has a container's devices and problems, in JSON.
type Verification struct {
	Version   cli.V1         `json:"version"`
	GPUs      []GPU          `json:"gpus"`
	VFs       []VF           `json:"vfs"`
	Pairs     []machine.Pair `json:"pairs"`
	InOrder   bool           `json:"inOrder"`   // as many VFs as GPUs, and the lists side by side have all near pairs
	PairsFile string         `json:"pairsFile"` // "agrees", "differs", "absent", or "partial" without some VFs
	Failures  []string       `json:"failures"`
	// pairs whose distance is that of the pairs file: only root reads the vpd files that assign NICs to DMA
	// functions
	Trusted []string       `json:"trusted,omitempty"`
	Traffic *TrafficReport `json:"traffic,omitempty"` // only with --traffic
}

// GPU is a GPU of the container.
type GPU struct {
	ID      string           `json:"id"` // its address; of an AMD partition amdgpu_xcp_<n>
	Address topology.Address `json:"address"`
	UUID    string           `json:"uuid,omitempty"` // NVIDIA only

	nvidia bool
	minor  string // of an NVIDIA GPU: of /dev/nvidia<minor>
	rocm   int    // of an AMD GPU: its index among those of the container; -1 for unknown
}

// VF is a VF of the container.
type VF struct {
	Address topology.Address `json:"address"`
	RDMA    []string         `json:"rdma,omitempty"`
	Netdevs []string         `json:"netdevs,omitempty"`
}

func (r *Verification) fail(format string, args ...any) {
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

// Table returns a table for people.
func (r *Verification) Table() *cli.Text {
	var out cli.Text
	if len(r.Pairs) > 0 {
		out.Row("GPU", "VF", "DISTANCE", "RDMA", "NETDEV")
	}
	for _, p := range r.Pairs {
		i := slices.IndexFunc(r.VFs, func(vf VF) bool { return vf.Address.String() == p.VF })
		out.Row(p.GPU, p.VF, machine.MarkDistances(p.Distance.String()),
			cmp.Or(strings.Join(r.VFs[i].RDMA, ","), "-"), cmp.Or(strings.Join(r.VFs[i].Netdevs, ","), "-"))
	}
	if len(r.Pairs) > 0 {
		out.Line()
	}
	if r.Traffic != nil {
		r.Traffic.writeTable(&out)
		out.Line()
	}
	verdict, order := cli.Good.Of("verified"), "in the order of the lists"
	if len(r.Failures) > 0 {
		verdict = cli.Bad.Of("not verified")
	}
	switch {
	case len(r.GPUs)+len(r.VFs) == 0:
		order = "without order (there are none)"
	case len(r.GPUs) != len(r.VFs):
		order = "without order (the counts differ)"
	case !r.InOrder:
		order = "not " + order
	}
	file := "pairs.json " + r.PairsFile
	switch r.PairsFile { // no problems: the file is optional in each pool
	case "absent":
		file = "no pairs.json"
	case "partial":
		file = "pairs.json agrees, without all VFs"
	}
	out.Line(verdict, fmt.Sprintf(": %s, %s, pairs %s, %s", cli.Count(len(r.GPUs), "GPU"),
		cli.Count(len(r.VFs), "VF"), order, file))
	for _, pair := range r.Trusted {
		fmt.Fprintf(&out, "by pairs.json alone, because only root reads keyword V3 of the vpd files: %s\n", pair)
	}
	return &out
}
