// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/coordination/verdict"
	"github.com/tandem-k8s/tandem/test/server"
)

// New creates the nodes and their objects, whose CRD must exist. Run starts the kubelets, which call told for
// each admitted or refused pod.
func New(ctx context.Context, client kubernetes.Interface, o Options, told func(Pod)) (*Fleet, error) {
	f := &Fleet{
		options: o, api: newAPI(client), nodes: map[string]*node{}, pods: map[types.UID]*seen{}, done: told,
		bound: make(chan news),
	}
	filled := make([][]types.UID, o.Nodes)
	var group errgroup.Group
	group.SetLimit(writers)
	shapes := &verdict.Shapes{}
	for i := range o.Nodes {
		t := server.Topology(fmt.Sprintf("node-%04d", i), o.VFs, true)
		known, err := shapes.New(t, nil)
		if err != nil {
			return nil, err
		}
		n := newNode(t.Name, known)
		f.nodes[t.Name] = n
		f.names = append(f.names, t.Name)
		group.Go(func() error {
			if err := f.api.node(ctx, server.Node(t.Name, o.VFs)); err != nil {
				return err
			}
			var err error
			if filled[i], err = f.fill(ctx, n, rand.New(rand.NewPCG(uint64(i), 0))); err != nil {
				return err
			}
			t.Spec.Held = n.report()
			return f.api.object(ctx, t)
		})
	}
	err := group.Wait()
	for _, uids := range filled {
		for _, uid := range uids {
			f.pods[uid] = &seen{}
		}
	}
	return f, err
}

// fill admits permanent pods to a node until they hold its share of the GPUs.
func (f *Fleet) fill(ctx context.Context, n *node, random *rand.Rand) ([]types.UID, error) {
	var uids []types.UID
	most := int(math.Round(f.options.Full * server.GPUs * 2 * random.Float64()))
	for used := 0; used < min(most, server.GPUs); {
		w := Mix[random.IntN(len(Mix))]
		w.Node = n.name
		pod := newPod(fmt.Sprintf("%s-%d", n.name, len(uids)), w)
		pod.UID = "probe"
		if used += max(w.GPUs, 1); !n.state.Ask(pod).Admitted {
			continue
		}
		created, err := f.api.create(ctx, pod)
		if err != nil {
			return nil, fmt.Errorf("fill %s: %w", n.name, err)
		}
		n.admit(created, created.CreationTimestamp.Time)
		uids = append(uids, created.UID)
	}
	return uids, nil
}

// Create creates a pod.
func (f *Fleet) Create(ctx context.Context, name string, w Wish) error {
	_, err := f.api.create(ctx, newPod(name, w))
	return err
}
