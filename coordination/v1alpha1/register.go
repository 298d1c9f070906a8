// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package.
var GroupVersion = schema.GroupVersion{Group: "tandem.dev", Version: "v1alpha1"}

// Plural is the name of the resource in the API server's paths.
const Plural = "nodetopologies"

// AddToScheme adds the objects to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &NodeTopology{}, &NodeTopologyList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
