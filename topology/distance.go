// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"slices"
)

// Level says in one word how far apart two functions are. A smaller Level is nearer.
type Level int

// The ladder, nearest first, in the words of the legend of "nvidia-smi topo -m". GPUDirect RDMA works over
// PIX and PXB; NCCL turns it off beyond (NCCL_NET_GDR_LEVEL, default PXB).
const (
	PIX  Level = iota // the lowest switch above either card is the same one
	PXB               // a bridge further up is shared, below the host bridge
	PHB               // the host bridge (root complex) alone is shared
	NODE              // same NUMA node, different host bridges
	SYS               // different NUMA nodes
	UNK               // cannot be told: no bridge is shared, and one of several NUMA nodes is unknown
)

// Levels is the number of levels; a Level is an index below it.
const Levels = int(UNK) + 1

var levelNames = [Levels]string{"PIX", "PXB", "PHB", "NODE", "SYS", "UNK"}

// String is the word itself, "PIX".
func (l Level) String() string {
	if l < 0 || int(l) >= Levels {
		return fmt.Sprintf("Level(%d)", int(l))
	}
	return levelNames[l]
}

// MarshalText prints the word.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads a word of the ladder; anything else is an error.
func (l *Level) UnmarshalText(text []byte) error {
	i := slices.Index(levelNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("parse distance %q: want one of %v", text, levelNames)
	}
	*l = Level(i)
	return nil
}

// SameSwitch reports whether traffic between the two stays below the host bridge: PIX or PXB.
func (l Level) SameSwitch() bool { return l == PIX || l == PXB }

// Distance is how far apart two functions are: the word first, then the number of bridges between them.
type Distance struct {
	Level   Level
	Bridges int // bridges crossed, those of the two cards themselves left out
}

// Compare orders distances, nearest first.
func (d Distance) Compare(e Distance) int {
	return cmp.Or(cmp.Compare(d.Level, e.Level), cmp.Compare(d.Bridges, e.Bridges))
}

// Distance tells how far apart two functions are; it is the same both ways. A VF is where its PF is. A
// function is PIX to itself and to others of its card, with no bridge crossed. A function that the tree does
// not hold is UNK.
func (t *Tree) Distance(a, b Address) Distance {
	da, db := t.devices[a], t.devices[b]
	if da == nil || db == nil {
		return Distance{Level: UNK}
	}
	if da.Function().Slot() == db.Function().Slot() {
		return Distance{Level: PIX}
	}
	above, below := t.shared[a], t.shared[b]
	common := shared(above, below)
	if common > 0 {
		d := Distance{Level: PXB, Bridges: len(above) + len(below) - 2*common + 1}
		if len(above) == common && len(below) == common {
			d.Level = PIX
		}
		return d
	}
	return Distance{Level: t.levelAcross(da, db), Bridges: len(above) + len(below)}
}

// shared counts the bridges that two chains have in common, from the top down.
func shared(a, b []Address) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// levelAcross is for functions that share no bridge.
func (t *Tree) levelAcross(a, b *Device) Level {
	a, b = t.pluggedIn(a), t.pluggedIn(b)
	if a.rootComplex == b.rootComplex {
		return PHB
	}
	na, knownA := a.NUMA.Number()
	nb, knownB := b.NUMA.Number()
	switch {
	case knownA && knownB && na == nb, len(t.nodes) <= 1:
		return NODE
	case knownA && knownB:
		return SYS
	default:
		return UNK
	}
}
