package nvidia

import "github.com/tandem-k8s/tandem/topology"

// links lists which GPUs are connected by NVLink, and by how many. NVSwitches connect every GPU with every
// other that is linked to them; what a GPU has of such links it has to each of the others.
func links(cards []card) []topology.Link {
	var list []topology.Link
	for i := range cards {
		for j := i + 1; j < len(cards); j++ {
			a, b := &cards[i], &cards[j]
			if a.err != nil || b.err != nil {
				continue
			}
			// Both ends count the same links; a link of which one end is down is none.
			count := min(a.peers[b.address], b.peers[a.address]) + min(a.switched, b.switched)
			if count == 0 {
				continue
			}
			if a.address.Compare(b.address) > 0 {
				a, b = b, a
			}
			list = append(list, topology.Link{
				A: a.address, B: b.address, Type: topology.NVLink, Hops: 1, Count: count,
			})
		}
	}
	return list
}
