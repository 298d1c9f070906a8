// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// NodeName is the name of the node, and of a driver's pool on the node.
const NodeName = "node-1"

// Publish returns the ResourceSlices of a driver's pool on the node like the kubeletplugin helper: numbered
// names, one generation, the number of slices in each.
func Publish(driver string, contents []pool.Slice) []*resourceapi.ResourceSlice {
	published := make([]*resourceapi.ResourceSlice, len(contents))
	for i, content := range contents {
		name := NodeName
		published[i] = &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%03x-%s-%s-x", i, driver, NodeName)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver,
				Pool: resourceapi.ResourcePool{
					Name: NodeName, Generation: 1, ResourceSliceCount: int64(len(contents)),
				},
				NodeName:       &name,
				Devices:        content.Devices,
				SharedCounters: content.SharedCounters,
			},
		}
	}
	return published
}

func node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: NodeName, Labels: map[string]string{corev1.LabelHostname: NodeName},
	}}
}
