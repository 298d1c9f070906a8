// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"slices"
)

// Level is the kind of path between two functions. A smaller Level is nearer.
type Level int

// The levels, nearest first, as in the legend of "nvidia-smi topo -m", and C2C, for which nvidia-smi has
// NODE. GPUDirect RDMA works over PIX and PXB, and over C2C with NCCL 2.27 or later (NCCL_NET_GDR_C2C=1, the
// default); beyond, NCCL does not use GPUDirect RDMA by default (NCCL_NET_GDR_LEVEL).
const (
	PIX  Level = iota // the lowest switch above both cards is the same
	PXB               // a bridge further up is shared, below the host bridge
	C2C               // a GPU on Grace or Vera and a ConnectX or BlueField-3 NIC of the same NUMA node
	PHB               // only the host bridge (root complex) is shared
	NODE              // same NUMA node, different host bridges
	SYS               // different NUMA nodes
	UNK               // unknown: no bridge is shared, and a NUMA node is unknown on a machine with several
)

// Levels is the number of levels; a Level is an index below it.
const Levels = int(UNK) + 1

var levelNames = [Levels]string{"PIX", "PXB", "C2C", "PHB", "NODE", "SYS", "UNK"}

// String returns the name of the level, such as "PIX".
func (l Level) String() string {
	if l < 0 || int(l) >= Levels {
		return fmt.Sprintf("Level(%d)", int(l))
	}
	return levelNames[l]
}

// MarshalText returns the result of String.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the name of a level. Any other text, such as a level of a later version, is UNK.
func (l *Level) UnmarshalText(text []byte) error {
	*l = UNK
	if i := slices.Index(levelNames[:], string(text)); i >= 0 {
		*l = Level(i)
	}
	return nil
}

// Direct reports whether GPUDirect RDMA works: PIX, PXB or C2C.
func (l Level) Direct() bool { return l <= C2C }

// Distance is the distance of two functions: first the level, then the number of bridges between them.
type Distance struct {
	Level   Level
	Bridges int // crossed bridges, without those of the two cards
}

// Compare orders distances, nearest first.
func (d Distance) Compare(e Distance) int {
	return cmp.Or(cmp.Compare(d.Level, e.Level), cmp.Compare(d.Bridges, e.Bridges))
}

// Distance returns the distance of two functions in either order. A VF has the distances of its PF. Functions
// of one card are PIX without a crossed bridge. A function outside the tree has the level UNK.
func (t *Tree) Distance(a, b Address) Distance {
	da, db := t.devices[a], t.devices[b]
	if da == nil || db == nil {
		return Distance{Level: UNK}
	}
	if da.Function().Slot() == db.Function().Slot() {
		return Distance{Level: PIX}
	}
	if d, ok := distanceBelow(t.bridgesOf(a), t.bridgesOf(b)); ok {
		return d
	}
	return Distance{Level: t.levelAcross(da, db), Bridges: len(t.shared[a]) + len(t.shared[b])}
}

// bridgesOf returns the shared bridges of a function, in a C2C complex too.
func (t *Tree) bridgesOf(a Address) []Address {
	if chain, near := t.ofC2C[a]; near {
		return chain
	}
	return t.shared[a]
}

// distanceBelow returns the distance of functions below a common bridge, from their shared bridges, and
// whether they have one.
func distanceBelow(above, below []Address) (d Distance, ok bool) {
	common := commonBridges(above, below)
	if common == 0 {
		return Distance{}, false
	}
	d = Distance{Level: PXB, Bridges: len(above) + len(below) - 2*common + 1}
	if len(above) == common && len(below) == common {
		d.Level = PIX
	}
	return d, true
}

// Port is a port on the way between two functions, below their lowest shared bridge.
type Port struct {
	Address
	// Redirects means that ACS sends GPUDirect RDMA of the function below the port up to the root complex: the
	// requests of a NIC, or the completions of a GPU.
	Redirects bool
}

// Ports returns the ports that decide whether traffic between two functions stays below their lowest shared
// bridge; nil for functions of one card or without a shared bridge.
func (t *Tree) Ports(a, b Address) []Port {
	da, db := t.devices[a], t.devices[b]
	if da == nil || db == nil || da.Function().Slot() == db.Function().Slot() {
		return nil
	}
	above, below := t.pluggedIn(da).bridges, t.pluggedIn(db).bridges
	common := commonBridges(above, below)
	if common == 0 {
		return nil
	}
	above, below = above[common:], below[common:]
	ports := append(make([]Port, 0, len(above)+len(below)), t.portsOf(da, above, db, below)...)
	return append(ports, t.portsOf(db, below, da, above)...)
}

// portsOf returns the ports on a function's way to another one. The requests of the NIC decide: those of the
// function itself, or those of the other.
func (t *Tree) portsOf(d *Device, way []Address, other *Device, otherWay []Address) (ports []Port) {
	translated := t.isTranslated(other, otherWay)
	if t.sendsRequests(d) {
		translated = t.isTranslated(d, way)
	}
	for _, port := range way {
		ports = append(ports, Port{port, t.isRedirected(port, d, translated)})
	}
	return ports
}

// commonBridges returns the number of common bridges of two chains, from the top down.
func commonBridges(a, b []Address) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// levelAcross returns the level of functions without a shared bridge.
func (t *Tree) levelAcross(a, b *Device) Level {
	atA, atB := t.pluggedIn(a), t.pluggedIn(b)
	na, knownA := atA.NUMA.Number()
	nb, knownB := atB.NUMA.Number()
	switch top := t.topOf(a); {
	case isC2CName(top) && top == t.topOf(b) && !areOfOneKind(a, b):
		return C2C
	case atA.rootComplex == atB.rootComplex:
		return PHB
	case knownA && knownB && na == nb, len(t.nodes) <= 1:
		return NODE
	case knownA && knownB:
		return SYS
	default:
		return UNK
	}
}

// areOfOneKind reports whether two functions are two GPUs or two NICs: no GPUDirect RDMA is between them.
func areOfOneKind(a, b *Device) bool { return a.isNVIDIA() && b.isNVIDIA() || a.IsNIC() && b.IsNIC() }

// LevelBelow returns the level of a GPU and a NIC that share no bridge, but the place of a name from
// [Tree.Top].
func LevelBelow(top string) Level {
	if isC2CName(top) {
		return C2C
	}
	return PHB
}
