// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/manifest"
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

// neverTwice fails if a GPU was allocated twice: by one name, or as a GPU and as a pair. The scheduler's
// allocations are compared, by the names of devices.
func (c *cluster) neverTwice() {
	c.t.Helper()
	claims, err := c.ResourceV1().ResourceClaims("").List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	holder := map[string]string{}
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			_, function, _ := strings.Cut(result.Device, "-")
			device := result.Pool + "/" + function
			if other, taken := holder[device]; taken {
				c.t.Errorf("%s of %s is allocated to %s and to %s", result.Device, result.Pool, other, claim.Name)
			}
			holder[device] = claim.Name
		}
	}
}

// classes makes the classes that claims of pools made by a test name. Clusters with the daemon have those of
// the manifests.
func (c *cluster) classes() {
	c.t.Helper()
	for _, kind := range []string{"gpu", "vf", "pair"} {
		class := &resourceapi.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: kind + ".tandem.dev"},
			Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
				CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
					`device.driver == "tandem.dev" && device.attributes["tandem.dev"].type == %q`, kind)},
			}}},
		}
		_, err := c.ResourceV1().DeviceClasses().Create(c.t.Context(), class, metav1.CreateOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// claimed waits until a pod has a claim, allocated or not.
func (c *cluster) claimed(ctx context.Context, pod string) error {
	watch, err := c.ResourceV1().ResourceClaims(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch ResourceClaims: %w", err)
	}
	defer watch.Stop()
	for {
		select {
		case event, ok := <-watch.ResultChan():
			if !ok {
				return errors.New("watch ResourceClaims: the API server has ended it")
			}
			claim, ok := event.Object.(*resourceapi.ResourceClaim)
			if ok && len(claim.OwnerReferences) > 0 && claim.OwnerReferences[0].Name == pod {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("pod %s has no claim: %w", pod, context.Cause(ctx))
		}
	}
}

// The manifests as they are shipped.
const (
	manifests = "../../../deployments/dra"
	templates = "../../../deployments/dra/claim-templates"
)

// apply applies a folder of manifests, in a namespace for what has none of its own.
func (c *cluster) apply(folder string) {
	c.t.Helper()
	if err := manifest.ApplyFolder(c.t.Context(), c.Admin(), folder, namespace); err != nil {
		c.t.Fatal(err)
	}
}
