// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

// cluster is a control plane as a test's administrator sees it.
type cluster struct {
	*plane.Plane
	kubernetes.Interface
	t testing.TB
}

func startCluster(t testing.TB, o plane.Options) *cluster {
	t.Helper()
	p := plane.Start(t, o)
	c := &cluster{Plane: p, Interface: p.Client(p.Admin()), t: t}
	// Pods need it, and its controller may come later.
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	_, err := c.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return c
}

// node makes a node on which pods can be scheduled.
func (c *cluster) node(name string) {
	c.t.Helper()
	if err := c.tryNode(name); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) tryNode(name string) error {
	room := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("1000"), v1.ResourceMemory: resource.MustParse("1Ti"),
		v1.ResourcePods: resource.MustParse("1000"),
	}
	_, err := c.CoreV1().Nodes().Create(c.t.Context(), &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		Status: v1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create node %s: %w", name, err)
	}
	return nil
}

// slicesOf are the ResourceSlices of a node's pool, in order, as the driver's library names them.
func slicesOf(node string, p pool.Pool) []*resourceapi.ResourceSlice {
	var list []*resourceapi.ResourceSlice
	for i, slice := range p.Slices {
		list = append(list, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%02d-%s", i, node)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: pool.Driver, NodeName: &node,
				Pool: resourceapi.ResourcePool{
					Name: node, Generation: 1, ResourceSliceCount: int64(len(p.Slices)),
				},
				SharedCounters: slice.SharedCounters, Devices: slice.Devices,
			},
		})
	}
	return list
}

// publish creates the slices of a node's pool, and returns what the API server made of them.
func (c *cluster) publish(
	ctx context.Context, node string, p pool.Pool,
) ([]*resourceapi.ResourceSlice, error) {
	var stored []*resourceapi.ResourceSlice
	for _, slice := range slicesOf(node, p) {
		created, err := c.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("create ResourceSlice %s: %w", slice.Name, err)
		}
		stored = append(stored, created)
	}
	return stored, nil
}
