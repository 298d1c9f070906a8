// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
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
	commands, err := docs.Of("../..", "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	f := read(t, "oci-mi300x-derived", 1, true, "", published.Restricted)
	s := newServer("a")
	sinks, _, err := publish.NewSinks(s.config(t, "a", publish.All...))
	if err != nil {
		t.Fatal(err)
	}
	for _, sink := range sinks {
		if _, err := sink.Write(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	delete(s.objects, "/api/v1/nodes/a")
	if len(s.objects) != len(sinks) {
		t.Errorf("%d targets have %d objects", len(sinks), len(s.objects))
	}
	for path, object := range s.objects {
		if !slices.ContainsFunc(commands, func(c docs.Command) bool {
			return strings.HasPrefix(c.Where, "docs/install.md:") &&
				deletes(c.Args, path, &unstructured.Unstructured{Object: object})
		}) {
			t.Errorf("no command of docs/install.md deletes %s", path)
		}
	}
}

// deletes reports whether arguments of kubectl delete an object with a path.
func deletes(args []string, path string, o *unstructured.Unstructured) bool {
	// GROUP/VERSION/[namespaces/N/]PLURAL/NAME
	words := strings.Split(strings.TrimPrefix(path, "/apis/"), "/")
	resource := words[len(words)-2] + "." + words[0]
	if slices.Equal(args, []string{"delete", "customresourcedefinitions", resource}) {
		return words[0] == "tandem.dev"
	}
	at := slices.Index(args, "-l")
	if len(args) < 4 || args[0] != "delete" || args[1] != resource || at < 0 {
		return false
	}
	selector, err := labels.Parse(args[at+1])
	in := slices.Index(args, "-n")
	return err == nil && selector.Matches(labels.Set(o.GetLabels())) &&
		(o.GetNamespace() == "" || in > 0 && args[in+1] == o.GetNamespace())
}
