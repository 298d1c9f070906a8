// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Served waits until the API server serves a resource, "/apis/GROUP/VERSION/PLURAL", which takes a moment
// after its CRD was applied.
func Served(ctx context.Context, config *rest.Config, path string) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := client.RESTClient().Get().AbsPath(path).Do(ctx).Error()
		switch {
		case err == nil:
			return nil
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("wait for %s: %w", path, err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", path, err)
		}
	}
}
