package placement

import (
	"cmp"
	"slices"

	"github.com/tandem-k8s/tandem/topology"
)

// How far apart two GPUs are, as two numbers to be added up over all pairs of a set, the first for links, the second for PCI Express
// where links make no difference. They share an int64, which has room for 2,000 chosen GPUs. GPUs of one card are at 0; a direct link
// costs linkHop per hop and saves one for every parallel link; a missing one is worse than any.
const (
	linkHop      = 100
	mostHops     = 9
	mostParallel = linkHop - 1
	noLink       = 1000
	levelStep    = 100
	linkShift    = 32
)

// overLink is how far apart two GPUs with a direct link are.
func overLink(l topology.Link) int64 {
	hops := min(max(l.Hops, 1), mostHops)
	return int64(linkHop*hops - min(max(l.Count, 1), mostParallel))
}

// apart is the locality of two GPUs that meet at a place and are so far apart by links. By PCI Express it is the level first; below the
// host bridge the more bridges they share, the nearer they are.
func (n *place) apart(link int64) int64 {
	d := levelStep * int64(n.level)
	if n.level == topology.PXB {
		d -= int64(min(n.depth, levelStep-1))
	}
	return link<<linkShift + d
}

// linked is a direct link between two cards, as numbers in the order of the tree, a before b.
type linked struct {
	a, b int
	link int64
}

// measure numbers the cards and sets for every place how near two GPUs are that meet there. That works where all of them are
// equally near: without links, with links from all to all, or within hives that are places. It reports the links where they
// follow no such order, nil where the places say all.
func (p *places) measure(links []topology.Link) (cards []*place, irregular []linked) {
	cards = p.root.numberCards(make([]*place, 0, p.root.gpus.most))
	between := p.between(links)
	for _, l := range between {
		meet := cards[l.a].parent
		for meet.cardHigh <= l.b {
			meet = meet.parent
		}
		if meet.links == 0 {
			meet.link = l.link
		} else if meet.link != l.link {
			irregular = between
		}
		meet.links++
	}
	if p.root.settleNear() {
		return cards, irregular
	}
	return cards, between
}

// numberCards gives every place the range of the cards below it.
func (n *place) numberCards(cards []*place) []*place {
	n.cardLow = len(cards)
	if n.kind == cardPlace {
		cards = append(cards, n)
	}
	for _, child := range n.children {
		cards = child.numberCards(cards)
	}
	n.cardHigh = len(cards)
	return cards
}

// between finds the links between cards that can be chosen, each once: the best where two are named twice.
func (p *places) between(links []topology.Link) []linked {
	found := make([]linked, 0, len(links))
	for _, l := range links {
		a, b := p.cardOf(l.A), p.cardOf(l.B)
		if a == nil || b == nil || a == b {
			continue
		}
		low, high := min(a.cardLow, b.cardLow), max(a.cardLow, b.cardLow)
		found = append(found, linked{a: low, b: high, link: overLink(l)})
	}
	slices.SortFunc(found, func(x, y linked) int {
		return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b), cmp.Compare(x.link, y.link))
	})
	return slices.CompactFunc(found, func(x, y linked) bool { return x.a == y.a && x.b == y.b })
}

// cardOf finds the card of a GPU that can be chosen, nil for any other.
func (p *places) cardOf(a topology.Address) *place {
	if s := p.sites[slotOf(p.function(a))]; s != nil && s.card != nil && s.card.gpus.most > 0 {
		return s.card
	}
	return nil
}

// settleNear sets how near GPUs are that meet, and reports whether at every place all that meet have a link or none.
func (n *place) settleNear() bool {
	regular, crossing, below := true, 0, 0
	for _, child := range n.children {
		regular = child.settleNear() && regular
		crossing += below * (child.cardHigh - child.cardLow)
		below += child.cardHigh - child.cardLow
	}
	if n.kind == cardPlace {
		return true
	}
	if n.links == 0 {
		n.link = noLink
	}
	n.near = n.apart(n.link)
	return regular && (n.links == 0 || n.links == crossing)
}
