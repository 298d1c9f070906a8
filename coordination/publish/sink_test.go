// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/test/docs"
	"github.com/tandem-k8s/tandem/test/published"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTargets(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "tandem": "tandem", "nrt, tandem,nrt": "nrt,tandem", "kubenexus,nfd": "kubenexus,nfd",
	} {
		var targets publish.Targets
		if err := targets.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got, _ := targets.MarshalText(); string(got) != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"all", "tandem,", "kubenexus", "kubenexus,tandem", "nfd-file"} {
		if err := new(publish.Targets).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}

const (
	zonesOfA   = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/a"
	featureOfA = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/kube-system/nodefeatures/tandem-a"
)

// zoneSink returns a sink of NodeResourceTopology, with facts.
func zoneSink(t *testing.T, s *server) (publish.Sink, publish.Facts, *bytes.Buffer) {
	t.Helper()
	f := read(t, "oci-mi300x-derived", 1, true, "", published.Restricted)
	config, log := s.config(t, "a", "nrt"), &bytes.Buffer{}
	config.Log = slog.New(slog.NewTextHandler(log, nil))
	return sink(t, config), f, log
}

// TestOthersObject: objects of other writers stay unchanged, with one warning, also if the other writer comes
// later.
func TestOthersObject(t *testing.T) {
	s := newServer("a")
	s.objects[zonesOfA] = map[string]any{"metadata": map[string]any{"name": "a"}, "zones": []any{}}
	sink, f, log := zoneSink(t, s)
	for range 3 {
		if written, err := sink.Write(t.Context(), f); written || err != nil {
			t.Errorf("written %v, %v", written, err)
		}
	}
	if len(s.writes) > 0 || strings.Count(log.String(), "not replacing an object") != 1 {
		t.Errorf("%d writes, log:\n%s", len(s.writes), log)
	}
	delete(s.objects, zonesOfA)
	if written, err := sink.Write(t.Context(), f); !written || err != nil {
		t.Fatalf("written %v, %v", written, err)
	}
	if policy := s.at(zonesOfA, "topologyPolicies"); policy.([]any)[0] != "Restricted" {
		t.Errorf("policies %v", policy)
	}
	s.conflict[zonesOfA] = true
	f.Spec.Kubelet.TopologyManagerPolicy = "none"
	if written, err := sink.Write(t.Context(), f); written || err != nil || len(s.writes) != 1 {
		t.Errorf("written %v, %v", written, err)
	}
}

// TestOthersObjectAgain: another writer's object is warned of again after the object was Tandem's.
func TestOthersObjectAgain(t *testing.T) {
	s := newServer("a")
	sink, f, log := zoneSink(t, s)
	for _, policy := range []string{"none", "restricted"} {
		s.conflict[zonesOfA] = false
		f.Spec.Kubelet.TopologyManagerPolicy = policy
		if written, err := sink.Write(t.Context(), f); !written || err != nil {
			t.Fatalf("written %v, %v", written, err)
		}
		s.conflict[zonesOfA] = true
		f.Spec.Kubelet.TopologyManagerPolicy = "best-effort"
		if written, err := sink.Write(t.Context(), f); written || err != nil {
			t.Fatalf("written %v, %v", written, err)
		}
	}
	if told := strings.Count(log.String(), "not replacing an object"); told != 2 {
		t.Errorf("taken over twice, told %d times:\n%s", told, log)
	}
}

// TestUnreadIsNotWritten: an object with unknown content stays as it is, and the error says why.
func TestUnreadIsNotWritten(t *testing.T) {
	s := newServer("a")
	sink, f, _ := zoneSink(t, s)
	f.Unread = fmt.Errorf("%w: read the checkpoint: input/output error", publish.ErrUnread)
	written, err := sink.Write(t.Context(), f)
	if written || !errors.Is(err, publish.ErrUnread) || len(s.writes) > 0 {
		t.Errorf("written %v, %v; %d writes", written, err, len(s.writes))
	}
	f.Unread = nil
	if written, err := sink.Write(t.Context(), f); !written || err != nil {
		t.Errorf("once known: written %v, %v", written, err)
	}
}

// TestNodeFeature: it is in the pod's namespace, names its node, and has only the labels.
func TestNodeFeature(t *testing.T) {
	s := newServer("a")
	f := read(t, "oci-mi300x-derived", 1, true, "", published.Restricted)
	feature := sink(t, s.config(t, "a", "nfd"))
	for range 2 {
		if _, err := feature.Write(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	if s.at(featureOfA, "metadata", "labels", "nfd.node.kubernetes.io/node-name") != "a" ||
		s.at(featureOfA, "spec", "labels", "tandem.dev/pairs") != "8" || len(s.writes) != 1 {
		t.Errorf("%d writes, %v", len(s.writes), s.objects[featureOfA])
	}
}

// TestMissing: without its CRD an object cannot be written, and the error names the CRD.
func TestMissing(t *testing.T) {
	s := newServer("a")
	s.missing[zonesOfA] = true
	sink, f, _ := zoneSink(t, s)
	if _, err := sink.Write(t.Context(), f); err == nil || !strings.Contains(err.Error(), zonesOfA) {
		t.Errorf("error %v", err)
	}
	other := newServer()
	sink, f, _ = zoneSink(t, other)
	if _, err := sink.Write(t.Context(), f); err == nil || !strings.Contains(err.Error(), "get node a") {
		t.Errorf("error %v", err)
	}
}

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
