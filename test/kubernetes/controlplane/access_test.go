// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"errors"
	"fmt"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// token is that of a pod's service account, as the kubelet mounts it: it names the pod and its node.
func (c *cluster) token(pod *v1.Pod) string {
	c.t.Helper()
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{
		BoundObjectRef: &authentication.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID,
		},
	}}
	made, err := c.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(c.t.Context(),
		pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return made.Status.Token
}

// published waits until the API server has all slices of a node's pool.
func (c *cluster) published(ctx context.Context, node string) error {
	watch, err := c.ResourceV1().ResourceSlices().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch ResourceSlices: %w", err)
	}
	defer watch.Stop()
	for {
		list, err := c.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
			FieldSelector: "spec.nodeName=" + node + ",spec.driver=" + pool.Driver,
		})
		if err != nil {
			return fmt.Errorf("list ResourceSlices: %w", err)
		}
		if n := len(list.Items); n > 0 && int64(n) == list.Items[0].Spec.Pool.ResourceSliceCount {
			return nil
		}
		select {
		case _, ok := <-watch.ResultChan():
			if !ok {
				return errors.New("watch ResourceSlices: the API server has ended it")
			}
		case <-ctx.Done():
			return fmt.Errorf("the driver has published %d slices: %w", len(list.Items), context.Cause(ctx))
		}
	}
}
