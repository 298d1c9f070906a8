// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/kubelet"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/test/published"
)

// TestPublish applies the manifests and publishes nodes as the daemons do, with their tokens. The definitions
// of NodeResourceTopology and NodeFeature are those of their projects: the API server refuses what they do
// not have.
func TestPublish(t *testing.T) {
	plane.EachVersion(t, func(t *testing.T, o plane.Options) {
		o.Alone = true
		c := startCluster(t, o)
		c.apply("../../../deployments/publish")
		c.apply("../../definitions/noderesourcetopology")
		c.apply("../../definitions/nodefeature")
		for _, name := range append(machines.Names(), "a", "b") {
			c.node(name)
		}
		t.Run("recorded machines", c.recorded)
		t.Run("another node", c.anotherNode)
	})
}

// publisher returns the configuration of a publisher with the token of the daemon on a node, for all objects
// of a node.
func (c *cluster) publisher(on, of string) publish.Config {
	c.t.Helper()
	pod := c.create(daemonOf(fmt.Sprintf("tandem-%s-%s", on, of), on))
	namespace := filepath.Join(c.t.TempDir(), "namespace")
	if err := os.WriteFile(namespace, []byte(daemonNamespace), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return publish.Config{
		Targets: publish.Targets{"tandem", "nrt", "nfd"}, Server: c.Bearer(c.token(pod)), Node: of,
		NamespaceFile: namespace, Log: slog.New(slog.DiscardHandler),
	}
}

func sinksOf(t *testing.T, config publish.Config) []publish.Sink {
	t.Helper()
	sinks, _, err := publish.NewSinks(config)
	if err != nil {
		t.Fatal(err)
	}
	return sinks
}

func factsOf(t *testing.T, machine string) publish.Facts {
	t.Helper()
	f, err := published.Facts(machine, 2, true, "", published.Restricted)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// recorded publishes all recorded machines. What is there is not written again, by a daemon that has just
// started either; and people see the columns.
func (c *cluster) recorded(t *testing.T) {
	for _, name := range machines.Names() {
		f, config := factsOf(t, name), c.publisher(name, name)
		for _, sink := range sinksOf(t, config) {
			eventually(t, func() error { _, err := sink.Write(t.Context(), f); return err })
		}
		for _, sink := range sinksOf(t, config) {
			if written, err := sink.Write(t.Context(), f); written || err != nil {
				t.Errorf("%s, %s: written again: %v, %v", name, sink.Name(), written, err)
			}
		}
	}
	table := c.table(t, "/apis/tandem.dev/v1alpha1/nodetopologies")
	for _, want := range []string{
		"Name Policy Switches GPUs VFs Pairs Age", "oci-mi300x-derived restricted 8 8/8 16/16 8 ",
		"nv-h200-vm-flat restricted 0 8/8 16/16 0 ",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	t.Logf("kubectl get ntopo:\n%s", table)
}

// foreignFeature is a NodeFeature of node a with a label that is not Tandem's.
const foreignFeature = `{"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
	"metadata": {"name": "tandem-a", "labels": {"nfd.node.kubernetes.io/node-name": "a"}},
	"spec": {"features": {"flags": {}, "attributes": {}, "instances": {}},
		"labels": {"node-restriction.kubernetes.io/team": "another"}}}`

// anotherNode has the daemon of node a write what is of node b.
func (c *cluster) anotherNode(t *testing.T) {
	f := factsOf(t, "oci-mi300x-derived")
	for _, sink := range sinksOf(t, c.publisher("a", "b")) {
		c.refused(t, "the token of tandem on node a is for the objects of that node alone", func() error {
			_, err := sink.Write(t.Context(), f)
			return err
		})
	}
	own := c.Client(c.publisher("a", "a").Server).Discovery().RESTClient()
	c.refused(t, "labels of tandem.dev and numa.kubenexus.io alone", func() error {
		return own.Patch(types.ApplyPatchType).AbsPath("/apis/nfd.k8s-sigs.io/v1alpha1/namespaces", daemonNamespace,
			"nodefeatures/tandem-a").Param("fieldManager", "tandem").Body([]byte(foreignFeature)).
			Do(t.Context()).Error()
	})
	daemon := c.Client(c.Bearer(c.token(c.create(daemonOf("reader", "a")))))
	_, err := daemon.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the daemon lists secrets: %v", err)
	}
	if _, err := daemon.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the daemon lists nodes: %v", err)
	}
}

// daemonOf is a pod of the daemons' account.
func daemonOf(name, node string) *v1.Pod {
	pod := podOf(name)
	pod.Namespace, pod.Spec.ServiceAccountName, pod.Spec.NodeName = daemonNamespace, "tandem", node
	pod.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	return pod
}

// table is what kubectl prints of a list.
func (c *cluster) table(t *testing.T, path string) string {
	t.Helper()
	body, err := c.Discovery().RESTClient().Get().AbsPath(path).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(context.Background()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil {
		t.Fatal(err)
	}
	var lines, head []string
	for _, column := range table.ColumnDefinitions {
		head = append(head, column.Name)
	}
	lines = append(lines, strings.Join(head, " "))
	for _, row := range table.Rows {
		lines = append(lines, joined(row.Cells))
	}
	return strings.Join(lines, "\n")
}

func joined(cells []any) string {
	var words []string
	for _, cell := range cells {
		words = append(words, fmt.Sprint(cell))
	}
	return strings.Join(words, " ")
}

// eventually tries until it works: definitions and rights take a moment to count.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := kubelet.Until(ctx, try); err != nil {
		t.Fatal(err)
	}
}
