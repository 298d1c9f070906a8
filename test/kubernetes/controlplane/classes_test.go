// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
