// SPDX-License-Identifier: Apache-2.0

// Package placement chooses a container's GPUs and VFs together. [Choose] is a pure function of the PCI tree,
// the free devices, the held devices and the requested numbers. It has no clock, no logger and no state, and
// the order of its input lists has no meaning: the same input gives the same answer.
//
// # The objective
//
// Of all ways to take the requested numbers of GPUs and VFs, and to pair them, Choose takes the best by the
// following criteria. Each criterion applies among choices that are equal by all previous criteria.
//
//  1. Pairs. Their number is the size of the larger half. Each device of the larger half is in one pair; the
//     devices of the smaller half have equal shares, which differ by one if the division has a remainder.
//     More PIX pairs are better, then more PXB, C2C, PHB, NODE and SYS pairs, then fewer pairs of switches
//     that redirect, then fewer bridges crossed in total. (For a device of unknown location only the
//     bridges above the other device count.) A switch redirects if a port between the switch and a device of
//     the request forwards upstream traffic to the host bridge (ACS; [topology.Tree.Redirected]): its pairs
//     are PIX, but slower than those of other switches. All pairs of a switch count alike, also if some NICs
//     send translated requests (ATS), which take no detour; the reason of a choice counts single pairs.
//  2. Good devices. As few devices as possible are degraded: by their state (Device.Degraded), a PF by a
//     PCIe link below its maximum, a GPU by a link with fewer lanes than its maximum.
//  3. Pairs left. The number of possible same-switch pairs among the remaining free devices is maximal: the
//     sum over all switches (for devices without a switch, C2C complexes and root complexes) of
//     min(free GPUs, free VFs). A GPU-only request therefore takes GPUs whose switch has no free VF. Free
//     devices that the request may not choose from (Spare) count as well.
//  4. Pairs later, when other containers (Taken) have ended. The sum over all switches of min(free GPUs, all
//     VFs), min(all GPUs, free VFs) and min(GPUs, VFs), without the devices of this container, is maximal. A
//     container without VFs therefore takes neither the last GPU of a switch nor a GPU that leaves a VF
//     without a partner for the container's lifetime, if it can take another. This gives more pairs in the
//     long run than the best single step.
//  5. GPU to GPU. Links come first: the sum over all pairs of the chosen GPUs of 0 on one card; over a direct
//     link 100 for each hop (at most 9) less one for each parallel link; without a link 1000. A missing link
//     is therefore worse than any link. PCI Express comes second, in the same way: 100 for each level of the
//     ladder beyond PIX, less one for each shared bridge between PIX and PHB. GPUs with equal links are
//     therefore taken from one switch, root complex or NUMA node.
//  6. Separate PFs. The number of pairs of the request's VFs that share a PF is minimal, then the number of
//     those that share a NIC: the ports of a NIC share its PCIe link.
//  7. Whole GPUs. Places stay whole for requests that need whole places: the sum of (free partitions)² over
//     cards, then of (free GPUs)² over switches, then over NUMA nodes is maximal.
//  8. Spread VFs. Each VF costs the number of VFs of its PF that other containers hold. Then the sum of
//     (free VFs)² over switches is minimal: VFs are taken from switches with most free VFs, so that no switch
//     runs out of VFs while its GPUs are in use.
//  9. The lowest place. From the root of the tree down, level by level, as few devices as possible are taken
//     from the places with the highest addresses: fewer GPUs, then fewer VFs, then fewer of the resource with
//     the lowest device, then of the next. On one card the lowest devices are taken.
//  10. VF index. If VFs come from several PFs, the index (virtfn0, virtfn1 …) that occurs on most of them is
//     on as many as possible, then that index is the lowest, then the same for the index on the next most
//     PFs, including held VFs. Rails and planes that are built by VF index therefore stay together (NCCL
//     issue 2244), without any cost: the number of VFs of each PF is already decided.
//
// This order gives the best results in "tandem-lab simulate". Pairs left are the pairs of future containers:
// they come before GPU locality, which they reduce slightly if VFs are few and not at all if there are
// enough. GPU locality comes before separate PFs: if two GPUs share a switch and a PF, the criteria exclude
// each other.
//
// # An example
//
// Three switches of an MI300X node, with two, one and no free VFs; another container holds a VF of the second
// PF:
//
//	GPU 0000:11:00.0   PF 0000:0c:00.0   VFs 0000:0c:00.1, 0000:0c:00.2
//	GPU 0000:2f:00.0   PF 0000:2a:00.0   VF  0000:2a:00.2
//	GPU 0000:46:00.0   PF 0000:41:00.0   -
//
//	1 GPU            0000:46, the only GPU without loss of a pair (3), although 0000:11 is lower (9)
//	1 GPU  + 1 VF    0000:11 with 0000:0c:00.1: PIX, as 0000:2f with 0000:2a:00.2 would be (1), on a PF
//	                 with less load (8)
//	2 GPUs + 2 VFs   0000:11 and 0000:2f, each with a VF of its switch: two VFs of 0000:0c would leave one GPU
//	                 without a VF. The VF is 0000:0c:00.2, because 0000:2a has no 00.1 (10)
//	2 GPUs + 3 VFs   the same GPUs: 0000:11 is paired with both VFs of 0000:0c, and all three pairs are PIX
//	3 GPUs + 3 VFs   two pairs are PIX; 0000:46 gets the other VF of 0000:0c, across root complexes (NODE)
//
// An algorithm that chooses the GPUs first fails here: GPUs that are near each other or low are not those
// with VFs. solver.go describes how the best choice is found.
//
// # Bounds
//
// The answer is optimal, and [Choice.Optimal] is true, unless the search needs more than maxSteps
// steps, or there are more than maxCards cards with irregular links. Requests of any size on 8 GPUs
// and 64 VFs, 16 GPUs and 128 VFs, or 64 partitions and 64 VFs are within the bounds, and so are requests of
// up to 256 of each on 1024 GPUs and 8192 VFs. With irregular links the halves of a request on more than 8
// GPUs must not be too unequal. Several resources are within the bounds if few places have devices of one
// resource, or if the request has few devices of each.
//
// Beyond the bounds the answer is well formed but not proven: extras follow the VFs instead of being tried in
// all numbers, in the last resort switches are filled one after another, and with irregular links the search
// ends with the step limit. Several resources are chosen one after another. The pairs of the chosen devices
// are optimal in all cases.
//
// The package assumes a regular tree: a root complex has one NUMA node, the lowest known one of the
// devices' places ([topology.Tree.NUMA]), and a GPU and a PF in one slot count as neighbours on one switch.
// The GPUs of a C2C complex are on different host bridges, which they share with no NIC outside the complex:
// such a NIC counts as NODE.
package placement

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// Device is a device to place: a GPU, a partition of a GPU, or a VF.
type Device struct {
	ID      string           // the kubelet's device ID
	Address topology.Address // its PCI function; for a partition, the function of its card
	// works, but worse than it should: chosen last among equally distant devices. A PF whose link is below its
	// maximum, and a card with fewer lanes than its maximum, are degraded in any case
	Degraded bool `json:",omitempty"`
}

// Half is the request for one resource: GPUs, partitions of one type, or the VFs of one pool.
type Half struct {
	Count int      // total number of requested devices, including Held
	Held  []Device // already assigned to the container, or must-include
	Free  []Device // may be chosen
}

// Devices are GPUs and VFs.
type Devices struct {
	GPUs, VFs []Device
}

// Request is the complete input. The order of lists has no meaning. For a device in several lists, Held takes
// precedence over Free, Free over Spare, and Spare over Taken.
type Request struct {
	GPUs, VFs []Half          // one for each requested resource; none if no resource of the kind is requested
	Links     []topology.Link // direct links between GPUs
	Spare     Devices         // free devices that may not be chosen: on other NUMA nodes, of other resources
	Taken     Devices         // held by other containers
}

// Pair is a GPU and the VF that serves it.
type Pair struct {
	GPU, VF  Device
	Distance topology.Distance
}

// Choice is the result of Choose.
type Choice struct {
	GPUs    []Device // ascending by address, then by ID
	VFs     []Device // the i-th VF pairs with the i-th GPU; see Choose
	Pairs   []Pair   // as many as the size of the larger half; none if a half is empty
	Left    int      // same-switch pairs that the remaining free devices can form, including spare devices
	Optimal bool     // proven: no better choice exists; false only beyond the package's bounds
	Reason  string   // one sentence with numbers, for logs and people
}

// compareDevices orders by address, then by ID: partitions of a card share its address.
func compareDevices(a, b Device) int {
	if c := a.Address.Compare(b.Address); c != 0 {
		return c
	}
	return compareNatural(a.ID, b.ID)
}

// compareNatural compares strings with embedded numbers by value, xcp_2 before xcp_10. It returns 0 only for
// identical strings.
func compareNatural(a, b string) int {
	whole := strings.Compare(a, b)
	if whole == 0 {
		return 0
	}
	same := 0 // common prefix up to a number: replicas of a device differ only in the number
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	for same > 0 && countDigits(a[same-1:]) > 0 {
		same--
	}
	a, b = a[same:], b[same:]
	for a != "" && b != "" {
		da, db := countDigits(a), countDigits(b)
		if da == 0 || db == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		na, nb := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
		if c := cmp.Or(cmp.Compare(len(na), len(nb)), strings.Compare(na, nb)); c != 0 {
			return c
		}
		a, b = a[da:], b[db:]
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), whole)
}

// countDigits returns the number of leading decimal digits.
func countDigits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// describeChoice describes the choice in one sentence: "4 pairs: 4 PIX; VFs on 4 PFs; 12 same-switch pairs
// left".
func (c *Choice) describeChoice(s *shares, p *places, redirected int) string {
	var text string
	switch {
	case s.GPUs+s.VFs == 0:
		return "nothing asked for"
	case s.Pairs > 0:
		text = countNoun(s.Pairs, "pair")
		if s.VFs < s.Pairs {
			text += " with " + countNoun(s.VFs, "VF")
		}
		text += ": " + Levels(c.Pairs)
		if redirected > 0 {
			text += fmt.Sprintf(", %d of them by way of the host bridge (ACS)", redirected)
		}
		text += "; VFs on " + countNoun(p.pfsTaken(), "PF")
	case s.GPUs > 0:
		text = countNoun(s.GPUs, "GPU")
		if n := p.switchesTaken(); n > 0 {
			text += " on " + countNoun(n, "switch")
		}
	default:
		text = countNoun(s.VFs, "VF") + " on " + countNoun(p.pfsTaken(), "PF")
	}
	taken, passed := p.degradedFunctions()
	text += Named("chosen although degraded", taken) + Named("degraded and not chosen", passed)
	text += "; " + countNoun(c.Left, "same-switch pair") + " left"
	if !c.Optimal {
		text += "; too large to prove it the best"
	}
	return text
}

// mostNamed is the maximum number of functions that a reason names.
const mostNamed = 4

// Named returns a part of a reason that names functions, at most four of them; "" for none.
func Named(what string, functions []topology.Address) string {
	if len(functions) == 0 {
		return ""
	}
	var names strings.Builder
	for _, a := range functions[:min(len(functions), mostNamed)] {
		names.WriteString(" " + a.String())
	}
	text := "; " + what + ":" + names.String()
	if more := len(functions) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Together returns the number of pairs on one switch, or as near (see [topology.Level.Direct]).
func Together(pairs []Pair) int {
	n := 0
	for _, p := range pairs {
		if p.Distance.Level.Direct() {
			n++
		}
	}
	return n
}

// Levels returns the number of pairs of each level, nearest first: "3 PIX, 1 NODE".
func Levels(pairs []Pair) string {
	var n [topology.Levels]int
	for _, p := range pairs {
		n[p.Distance.Level]++
	}
	var parts []string
	for level, k := range n {
		if k > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", k, topology.Level(level)))
		}
	}
	return strings.Join(parts, ", ")
}

// countNoun formats a number with a noun.
func countNoun(n int, word string) string {
	switch {
	case n == 1:
	case word == "switch":
		word = "switches"
	default:
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}
