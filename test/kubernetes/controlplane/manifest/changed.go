// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// ApplyChanged applies the wanted objects of a folder like ApplyFolder. The function wanted may change each
// object.
func ApplyChanged(
	ctx context.Context, config *rest.Config, folder, namespace string,
	wanted func(*unstructured.Unstructured) (bool, error),
) error {
	objects, err := build(folder)
	if err != nil {
		return fmt.Errorf("build %s: %w", folder, err)
	}
	a, err := newApplier(config, namespace)
	if err != nil {
		return err
	}
	for _, o := range objects {
		want, err := wanted(o)
		if err == nil && want {
			err = a.apply(ctx, o)
		}
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func build(folder string) ([]*unstructured.Unstructured, error) {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // namespaces first, like kubectl
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, err
	}
	text, err := built.AsYaml()
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for reader := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := new(unstructured.Unstructured)
		if err := reader.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}
