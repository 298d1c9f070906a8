// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/test/docs"
	"github.com/tandem-k8s/tandem/test/published"
)

// TestRemovalIsDocumented: docs/install.md deletes each kind of published object, by a label of the objects,
// or with the CRD if it is Tandem's.
func TestRemovalIsDocumented(t *testing.T) {
	const namespace = "kube-system"
	commands, err := docs.Of("../..", "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	f, err := published.Facts("oci-mi300x-derived", 1, true, "", published.Restricted)
	if err != nil {
		t.Fatal(err)
	}
	none := func(publish.Facts) map[string]string { return map[string]string{} }
	feature := publish.NodeFeature(namespace, none)
	for _, render := range []func(publish.Facts, publish.Node) publish.Object{
		publish.NodeTopology, publish.Zones, feature,
	} {
		o := render(f, publish.Node{Name: "a"})
		if !slices.ContainsFunc(commands, func(c docs.Command) bool {
			return strings.HasPrefix(c.Where, "docs/install.md:") && deletes(t, c.Args, o, namespace)
		}) {
			t.Errorf("no command of docs/install.md deletes %s", o)
		}
	}
}

// deletes reports whether arguments of kubectl delete an object.
func deletes(t *testing.T, args []string, o publish.Object, namespace string) bool {
	t.Helper()
	path := strings.Split(strings.TrimPrefix(o.Collection, "/apis/"), "/") // GROUP/VERSION/[namespaces/N/]PLURAL
	resource := path[len(path)-1] + "." + path[0]
	if slices.Equal(args, []string{"delete", "customresourcedefinitions", resource}) {
		return path[0] == "tandem.dev"
	}
	at := slices.Index(args, "-l")
	if len(args) < 4 || args[0] != "delete" || args[1] != resource || at < 0 {
		return false
	}
	content, err := json.Marshal(o.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body unstructured.Unstructured
	if err := body.UnmarshalJSON(content); err != nil {
		t.Fatal(err)
	}
	selector, err := labels.Parse(args[at+1])
	if err != nil {
		t.Fatal(err)
	}
	in := slices.Index(args, "-n")
	return selector.Matches(labels.Set(body.GetLabels())) &&
		(body.GetNamespace() == "" || in > 0 && args[in+1] == namespace)
}
