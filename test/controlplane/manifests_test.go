package controlplane_test

import (
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// The manifests as they are shipped.
const (
	manifests = "../../deployments/dra"
	templates = "../../deployments/dra/claim-templates"
)

// apply does what "kubectl apply --server-side -k FOLDER" does, in a namespace for what has none of its own.
func (c *cluster) apply(folder string) {
	c.t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		c.t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		c.t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(c.Admin())
	if err != nil {
		c.t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(c.Discovery())
	if err != nil {
		c.t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for reader := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(text)), 4096); ; {
		var o unstructured.Unstructured
		if err := reader.Decode(&o.Object); err == io.EOF {
			return
		} else if err != nil {
			c.t.Fatal(err)
		}
		mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		if err != nil {
			c.t.Fatal(err)
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == "namespace" {
			at := o.GetNamespace()
			if at == "" {
				at = namespace
			}
			resource = client.Resource(mapping.Resource).Namespace(at)
		}
		if _, err := resource.Apply(c.t.Context(), o.GetName(), &o, metav1.ApplyOptions{
			FieldManager: "kubectl", Force: true,
		}); err != nil {
			c.t.Fatalf("apply %s %s of %s: %v", o.GetKind(), o.GetName(), folder, err)
		}
	}
}
