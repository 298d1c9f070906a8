// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Fallback values of --fallback-strategies: the choice of a configuration if neither the label nor
// --default-config names one.
const (
	named  = "named"  // the configuration with the name default
	single = "single" // the only configuration
	empty  = "empty"  // no configuration
)

// defaultName is the name of the configuration of the strategy named.
const defaultName = "default"

// choose returns the name of the configuration for a value of the label, "" for none.
func (o *options) choose(label string) (string, error) {
	there, err := configurations(o.source)
	if err != nil {
		return "", err
	}
	switch {
	case label != "":
		return o.known(there, label, "the node's label "+o.nodeLabel)
	case o.preset != "":
		return o.known(there, o.preset, "--default-config")
	}
	for _, strategy := range o.fallbacks {
		switch {
		case strategy == empty:
			return "", nil
		case strategy == single && len(there) == 1:
			return there[0], nil
		case strategy == named && slices.Contains(there, defaultName):
			return defaultName, nil
		case strategy != single && strategy != named:
			return "", fmt.Errorf("--fallback-strategies has %q: want %s, %s or %s", strategy, named, single, empty)
		}
	}
	return "", fmt.Errorf("no configuration is chosen: the node has no label %s, there is no --default-config, "+
		"and --fallback-strategies (%s) finds none among %s",
		o.nodeLabel, strings.Join(o.fallbacks, ", "), strings.Join(there, ", "))
}

// known checks that a configuration exists; whose names the source of the name in the error.
func (o *options) known(there []string, name, whose string) (string, error) {
	if !slices.Contains(there, name) {
		return "", fmt.Errorf("%s names the configuration %q: %s has %s alone",
			whose, name, o.source, strings.Join(there, ", "))
	}
	return name, nil
}

// configurations returns the configurations of a directory, sorted. Entries with two leading dots belong to
// Kubernetes' atomic update of ConfigMaps.
func configurations(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the configurations: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if !entry.IsDir() && !strings.HasPrefix(entry.Name(), "..") {
			names = append(names, entry.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("list the configurations: %s has none", dir)
	}
	return names, nil
}

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
