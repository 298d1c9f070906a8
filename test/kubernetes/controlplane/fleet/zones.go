// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/test/server"
)

// twin is a recorded machine with the switches of package server. The recording lacks the memory of its NUMA
// nodes.
const (
	twin   = "oci-mi300x-derived"
	memory = 512 << 30
)

// zones make the NodeResourceTopology objects of the nodes. Nil makes none.
type zones struct {
	empty publish.Facts // of a node without pods
}

// newZones returns the zones of servers. Devices have the same numbers as in server.Topology.
func newZones(vfs int) (*zones, error) {
	f, err := published.Facts(twin, vfs, true, "", published.Restricted)
	if err != nil {
		return nil, err
	}
	same := func(a, b v1alpha1.Resource) bool { return a.Name == b.Name && maps.Equal(a.Hints, b.Hints) }
	if !slices.EqualFunc(f.Spec.Resources, server.Topology("", vfs, true).Spec.Resources, same) {
		return nil, fmt.Errorf("%s is not as a server with %d VFs for each NIC", twin, vfs)
	}
	for i := range f.NUMANodes {
		f.NUMANodes[i].Memory = map[string]v1alpha1.Memory{"memory": {Total: memory}}
	}
	return &zones{f}, nil
}

// write writes the zones of a node with the pods' holdings.
func (z *zones) write(ctx context.Context, a *api, node string, held []v1alpha1.Held) error {
	if z == nil {
		return nil
	}
	f := z.empty
	f.Spec.Held = held
	return ApplyZones(ctx, a.rest, node, publish.BuildZones(f))
}

// ZonesCollection is the path of the NodeResourceTopology objects at the API server.
const ZonesCollection = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"

// ApplyZones applies the zones of a node like the node's publisher.
func ApplyZones(ctx context.Context, client rest.Interface, node string, t *publish.ResourceTopology) error {
	t.Name, t.Labels = node, map[string]string{"app.kubernetes.io/managed-by": "tandem"}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}
	t.OwnerReferences = []metav1.OwnerReference{owner} // no collector compares the UID
	body, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("write the zones of %s: %w", node, err)
	}
	return client.Patch(types.ApplyPatchType).AbsPath(ZonesCollection, node).Param("fieldManager", "tandem").
		Body(body).Do(ctx).Error()
}

// report writes the zones of a node when their turn comes.
func (z *zones) report(a *api, n *node) {
	if z == nil {
		return
	}
	held := n.report()
	a.later(n.name, func(ctx context.Context) error { return z.write(ctx, a, n.name, held) })
}
