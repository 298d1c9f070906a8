// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// ServerConfig says how to reach the API server: as told or, without that (nil), as a process in a pod does.
// An error says what the pod lacks.
func ServerConfig(told *rest.Config) (*rest.Config, error) {
	if told != nil {
		return told, nil
	}
	inCluster, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server, set automountServiceAccountToken: true: %w", err)
	}
	return inCluster, nil
}

// NewClient makes a client of the API server that knows some types of the core group alone. client-go's
// clientset would bring every API of Kubernetes along, in 23 MB of binary.
func NewClient(config *rest.Config, known ...runtime.Object) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, known...)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}
