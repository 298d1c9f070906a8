// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"maps"
	"slices"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// consumer has the separately allocated GPUs and tokens of one group in one claim.
type consumer struct {
	gpus   []*Prepared // GPUs that no VF serves yet
	tokens []*token
	share  int // number of GPUs per VF
}

// token is a VF that was allocated by itself. Another VF of the same resource may be assigned in its place.
type token struct {
	*Prepared
	paired bool // the assigned VF serves a GPU of its container
}

func (t *token) assignedVF() string { return t.VFs[0] }

// redeemTokens assigns VFs to the tokens of a claim to make as many pairs on one switch as possible: the
// token's own VF if it pairs, else the reserved VF of a GPU, else, in exchange, the VF of another container's
// token.
func (n *nodeIndex) redeemTokens(devices []Prepared) {
	all, reserved := n.findConsumers(devices), n.reservedVFs()
	maps.DeleteFunc(reserved, func(_, vf string) bool { // published alone before
		return slices.ContainsFunc(devices, func(p Prepared) bool { return slices.Contains(p.VFs, vf) })
	})
	for _, step := range []func(*consumer, *token){
		n.serveGPUs,
		func(c *consumer, t *token) { n.takeReserved(c, t, reserved) },
		func(c *consumer, t *token) { n.exchangeVFs(c, t, all) },
	} {
		for _, c := range all {
			for _, t := range c.tokens {
				if !t.paired && len(c.gpus) > 0 {
					step(c, t)
				}
			}
		}
	}
	for _, c := range all {
		for _, t := range c.tokens {
			named, _ := n.state.Pool.Find(n.state.Machine, t.Device)
			id := named.VFs[0]
			if id != t.assignedVF() && (n.given[t.Device] || n.held.Of(id, n.units[id]) == "") {
				t.Token = id
			}
		}
	}
}

// findConsumers returns the consumers with tokens, in the order of the devices. Devices with admin access
// stay as named.
func (n *nodeIndex) findConsumers(devices []Prepared) []*consumer {
	var order []*consumer
	byGroup := map[string]*consumer{}
	for i := range devices {
		p := &devices[i]
		c := byGroup[p.Group]
		if c == nil {
			c = &consumer{}
			byGroup[p.Group], order = c, append(order, c)
		}
		switch {
		case p.Admin:
		case len(p.VFs) == 0 && len(p.GPUs) == 1:
			c.gpus = append(c.gpus, p)
		case len(p.GPUs) == 0 && len(p.VFs) == 1:
			c.tokens = append(c.tokens, &token{Prepared: p})
		}
	}
	order = slices.DeleteFunc(order, func(c *consumer) bool { return len(c.tokens) == 0 })
	for _, c := range order {
		c.share = (len(c.gpus) + len(c.tokens) - 1) / len(c.tokens)
	}
	return order
}

// serveGPUs pairs a token's VF, if it is available, with its share of the container's GPUs on one switch. All
// GPUs on the switch are equivalent, so any choice leaves the same number of possible pairs.
func (n *nodeIndex) serveGPUs(c *consumer, t *token) {
	if !n.isAvailable(t.assignedVF()) {
		return
	}
	served := 0
	c.gpus = slices.DeleteFunc(c.gpus, func(gpu *Prepared) bool {
		if served == c.share || !n.sameSwitch(gpu.GPUs[0], t.assignedVF()) {
			return false
		}
		served++
		return true
	})
	t.paired = served > 0
}

// takeReserved hands the reserved VF of a GPU of the container out for a token of the same resource, once.
func (n *nodeIndex) takeReserved(c *consumer, t *token, reserved map[string]string) {
	for _, gpu := range c.gpus {
		vf, ok := reserved[gpu.GPUs[0]]
		if ok && n.isAvailable(vf) && n.vfs[vf].Pool == n.vfs[t.assignedVF()].Pool {
			t.VFs, gpu.With = []string{vf}, vf
			delete(reserved, gpu.GPUs[0])
			n.serveGPUs(c, t)
			return
		}
	}
}

// exchangeVFs swaps the VFs of two tokens if the other VF serves a GPU of t's container, preferably with a
// token for which the swap makes a pair too.
func (n *nodeIndex) exchangeVFs(c *consumer, t *token, all []*consumer) {
	var found *token
	var of *consumer
	for _, other := range all {
		for _, u := range other.tokens {
			if u.paired || other == c || n.vfs[u.assignedVF()].Pool != n.vfs[t.assignedVF()].Pool ||
				!n.isAvailable(t.assignedVF()) || !n.isAvailable(u.assignedVF()) || !n.nearAny(c.gpus, u.assignedVF()) {
				continue
			}
			useful := n.nearAny(other.gpus, t.assignedVF())
			if found == nil || useful {
				found, of = u, other
			}
		}
	}
	if found != nil {
		found.VFs, t.VFs = t.VFs, found.VFs
		n.serveGPUs(c, t)
		n.serveGPUs(of, found)
	}
}

// reservedVFs returns the VFs that are published with one GPU only, by the GPU's ID: those that a single pair
// names.
func (n *nodeIndex) reservedVFs() map[string]string {
	named, pairs := map[string]int{}, map[string]int{}
	for _, device := range n.state.Pool.Devices {
		if device.Type == pool.TypeBundle { // its pairs are counted separately
			continue
		}
		for _, vf := range device.VFs {
			named[vf]++
		}
		for _, gpu := range device.GPUs {
			pairs[gpu] += len(device.VFs)
		}
	}
	reserved := map[string]string{}
	for _, device := range n.state.Pool.Devices {
		if len(device.GPUs) != 1 || len(device.VFs) != 1 {
			continue
		}
		if gpu, vf := device.GPUs[0], device.VFs[0]; pairs[gpu] == 1 && named[vf] == 1 {
			reserved[gpu] = vf
		}
	}
	return reserved
}
