// SPDX-License-Identifier: Apache-2.0

// Package manifest applies manifests as kubectl does.
package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// ApplyFolder corresponds to "kubectl apply --server-side -k FOLDER", with a default namespace.
func ApplyFolder(ctx context.Context, config *rest.Config, folder, namespace string) error {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return fmt.Errorf("build %s: %w", folder, err)
	}
	text, err := built.AsYaml()
	if err != nil {
		return fmt.Errorf("write what %s makes: %w", folder, err)
	}
	return apply(ctx, config, text, namespace)
}

// ApplyFile corresponds to "kubectl apply --server-side -f FILE".
func ApplyFile(ctx context.Context, config *rest.Config, file, namespace string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return apply(ctx, config, text, namespace)
}

func apply(ctx context.Context, config *rest.Config, text []byte, namespace string) error {
	a, err := newApplier(config, namespace)
	if err != nil {
		return err
	}
	for reader := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var o unstructured.Unstructured
		if err := reader.Decode(&o.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a manifest: %w", err)
		}
		if err := a.apply(ctx, &o); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
}

// applier applies objects at their paths.
type applier struct {
	client    dynamic.Interface
	mapper    meta.RESTMapper
	namespace string
}

func newApplier(config *rest.Config, namespace string) (*applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	known, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	groups, err := restmapper.GetAPIGroupResources(known)
	if err != nil {
		return nil, fmt.Errorf("ask which resources there are: %w", err)
	}
	return &applier{client, restmapper.NewDiscoveryRESTMapper(groups), namespace}, nil
}

func (a *applier) apply(ctx context.Context, o *unstructured.Unstructured) error {
	kind := o.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = a.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		at := o.GetNamespace()
		if at == "" {
			at = a.namespace
		}
		resource = a.client.Resource(mapping.Resource).Namespace(at)
	}
	_, err = resource.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "kubectl", Force: true})
	return err
}
