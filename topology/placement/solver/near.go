package solver

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// How far apart two GPUs are, as two numbers to be added up over all pairs of a set, the first for links, the
// second for PCI Express where links make no difference. They share an int64, which has room for 2,000 chosen
// GPUs. GPUs of one card are at 0; a direct link costs linkHop per hop and saves one for every parallel link;
// a missing one is worse than any.
const (
	linkHop      = 100
	mostHops     = 9
	mostParallel = linkHop - 1
	noLink       = 1000
	levelStep    = 100
	linkShift    = 32
)

// apart is the locality of two GPUs that meet at a place and are so far apart by links. By PCI Express it is
// the level first; below the host bridge the more bridges they share, the nearer they are.
func (n *Place) apart(link int64) int64 {
	d := levelStep * int64(n.Level)
	if n.Level == topology.PXB {
		d -= int64(min(n.Depth, levelStep-1))
	}
	return link<<linkShift + d
}

// Link is a direct link between two cards, as numbers in the order of the tree, a before b.
type Link struct {
	a, b int
	link int64 // how far apart it makes two GPUs
}

// NewLink is a link between two cards of a tree that [New] knows: the GPUs passed on the way, the last one
// included, and how many such links there are.
func NewLink(a, b *Place, hops, count int) Link {
	hops = min(max(hops, 1), mostHops)
	return Link{
		a: min(a.cardLow, b.cardLow), b: max(a.cardLow, b.cardLow),
		link: int64(linkHop*hops - min(max(count, 1), mostParallel)),
	}
}

// measure sets for every place how near two GPUs are that meet there. That works where all of them are
// equally near: without links, with links from all to all, or within hives that are places. It reports the
// links where they follow no such order, nil where the places say all.
func (s *Solver) measure(links []Link) (irregular []Link) {
	links = each(links)
	for _, l := range links {
		meet := s.cards[l.a].Parent
		for meet.cardHigh <= l.b {
			meet = meet.Parent
		}
		if meet.links == 0 {
			meet.link = l.link
		} else if meet.link != l.link {
			irregular = links
		}
		meet.links++
	}
	if s.root.settleNear() {
		return irregular
	}
	return links
}

// numberCards gives every place the range of the cards below it.
func (n *Place) numberCards(cards []*Place) []*Place {
	n.cardLow = len(cards)
	if n.Kind == Card {
		cards = append(cards, n)
	}
	for _, child := range n.Children {
		cards = child.numberCards(cards)
	}
	n.cardHigh = len(cards)
	return cards
}

// each keeps every link once: the best where two are named twice.
func each(links []Link) []Link {
	slices.SortFunc(links, func(x, y Link) int {
		return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b), cmp.Compare(x.link, y.link))
	})
	return slices.CompactFunc(links, func(x, y Link) bool { return x.a == y.a && x.b == y.b })
}

// settleNear sets how near GPUs are that meet, and reports whether at every place all that meet have a link
// or none.
func (n *Place) settleNear() bool {
	regular, crossing, below := true, 0, 0
	for _, child := range n.Children {
		regular = child.settleNear() && regular
		crossing += below * (child.cardHigh - child.cardLow)
		below += child.cardHigh - child.cardLow
	}
	if n.Kind == Card {
		return true
	}
	if n.links == 0 {
		n.link = noLink
	}
	n.near = n.apart(n.link)
	return regular && (n.links == 0 || n.links == crossing)
}
