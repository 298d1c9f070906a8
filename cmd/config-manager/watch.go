// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// watchLabel sends the value of a node's label, and each new value, until ctx is done; "" for a node without
// the label. If several values arrive before the receiver reads, it sends the last one.
func watchLabel(ctx context.Context, config *rest.Config, node, label string) (<-chan string, error) {
	client, err := nodesClient(config)
	if err != nil {
		return nil, err
	}
	labels := make(chan string, 1)
	offer := func(object any) {
		value := object.(*corev1.Node).Labels[label]
		select {
		case <-labels: // drops an outdated value
		default:
		}
		labels <- value
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, "nodes", metav1.NamespaceAll,
			fields.OneTermEqualSelector("metadata.name", node)),
		ObjectType: &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: offer,
			UpdateFunc: func(before, now any) {
				if before.(*corev1.Node).Labels[label] != now.(*corev1.Node).Labels[label] {
					offer(now)
				}
			},
		},
	})
	go informer.RunWithContext(ctx)
	return labels, nil
}

// nodesClient returns a client for Nodes: client-go's clientset would add every API of Kubernetes to the
// binary, 23 MB.
func nodesClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Node{}, &corev1.NodeList{})
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return client, nil
}
