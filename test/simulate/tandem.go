// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"

	"github.com/tandem-k8s/tandem/test/simulate/world"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// tandem chooses like the coordinator: the requested half from the kubelet's list; the other half as
// allocated, or as the most likely request.
type tandem struct {
	node  *world.Node
	known bool // the pod's spec could be read
}

func tandemUnknown(n *world.Node) world.Prefer { return (&tandem{node: n}).prefer }
func tandemKnown(n *world.Node) world.Prefer   { return (&tandem{node: n, known: true}).prefer }

func (t *tandem) prefer(s *world.State, q world.Question, _ *rand.Rand) []int {
	if !t.known {
		q.Request = guess(q)
	}
	choice, err := placement.Choose(t.node.Tree, q.Preference(s))
	if err != nil {
		return nil
	}
	return q.Chosen(s, choice)
}

// guess returns the expected request of an unknown container: its devices of the other kind or, without any,
// the same number as in the question.
func guess(q world.Question) world.Request {
	n := [2]int{q.Size, q.Size}
	if other := q.Kind.Other(); len(q.Allocated[other]) > 0 {
		n[other] = len(q.Allocated[other])
	}
	return world.Request{GPUs: n[world.GPU], VFs: n[world.VF]}
}
