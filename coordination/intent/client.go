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

// ServerConfig returns the given configuration or, for nil, the configuration for processes in a pod. The
// error contains advice if the pod has no service account token.
func ServerConfig(given *rest.Config) (*rest.Config, error) {
	if given != nil {
		return given, nil
	}
	inCluster, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server, set automountServiceAccountToken: true: %w", err)
	}
	return inCluster, nil
}

// NewClient returns a client of the API server for some types of the core group. client-go's clientset
// contains all APIs of Kubernetes, which adds 23 MB to a program.
func NewClient(config *rest.Config, types ...runtime.Object) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, types...)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}
