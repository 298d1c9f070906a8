// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceSlices returns the objects of a pool as first published for a node. The controller of
// k8s.io/dynamic-resource-allocation, which publishes them, appends random suffixes to the names.
func (p Pool) ResourceSlices(node string) []resourceapi.ResourceSlice {
	count := int64(len(p.Slices))
	objects := make([]resourceapi.ResourceSlice, 0, len(p.Slices))
	for i, s := range p.Slices {
		objects = append(objects, resourceapi.ResourceSlice{
			TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%05d-%s-%s", i, node, Driver)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver:         Driver,
				Pool:           resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: count},
				NodeName:       &node,
				Devices:        s.Devices,
				SharedCounters: s.SharedCounters,
			},
		})
	}
	return objects
}
