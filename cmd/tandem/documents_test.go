// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/test/simulate"
	"github.com/tandem-k8s/tandem/topology"
)

// compile reads a published schema; closed makes it refuse unknown keys.
func compile(t *testing.T, name string, closed bool) *jsonschema.Schema {
	t.Helper()
	file := filepath.Join("../../docs/schemas", name+".json")
	text, err := os.ReadFile(file)
	ready(t, err)
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	ready(t, err)
	if closed {
		closeSchema(schema)
	}
	compiler := jsonschema.NewCompiler()
	ready(t, compiler.AddResource(name, schema))
	return compiler.MustCompile(name)
}

// validate checks a document against its schema: the schema names all keys of the document, accepts
// additional keys of later releases, and refuses another version.
func validate(t *testing.T, schema, text string) {
	t.Helper()
	published, closed := compile(t, schema, false), compile(t, schema, true)
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v: %s", schema, err, text)
	}
	for _, s := range []*jsonschema.Schema{published, closed} {
		if err := s.Validate(document); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
	for _, wrong := range otherVersions(t, text) {
		if published.Validate(wrong) == nil {
			t.Errorf("%s: the schema accepts %v", schema, wrong)
		}
	}
	for _, later := range withMore(t, text) {
		if err := published.Validate(later); err != nil {
			t.Errorf("%s: the schema refuses a later document: %v", schema, err)
		}
		if closed.Validate(later) == nil {
			t.Errorf("%s: closed, the schema accepts %v", schema, later)
		}
	}
}

// TestDocumentsOfMachines: the output of topo and plan for every recorded machine matches the schemas.
func TestDocumentsOfMachines(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../test/machines/*.txt")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d machines, %v", len(files), err)
	}
	for _, file := range files {
		_, stdout, _ := run("topo", "-o", "json", "--all", "--machine", file)
		validate(t, "topo", stdout)
		code, stdout, _ := run("plan", "--gpus", "1", "--vfs", "1", "-o", "json", "--machine", file)
		if code == cli.ExitOK {
			validate(t, "plan", stdout)
		}
	}
	root := sysfs(t, "oci-mi300x-derived", 1)
	validate(t, "topo", succeed(t, "topo", "-v", "-o", "json", "--sysfs-root", root))
	validate(t, "plan", succeed(t, "plan", "--vfs", "1", "-o", "json", "--sysfs-root", root))
}

// TestDocumentOfASimulation: what tandem-lab simulate prints.
func TestDocumentOfASimulation(t *testing.T) {
	t.Parallel()
	mix, err := simulate.ParseMix(simulate.DefaultMix)
	ready(t, err)
	for _, vfs := range []int{1, 0} {
		node, err := simulate.NewPreset("A", vfs)
		ready(t, err)
		report, err := simulate.Run(t.Context(), simulate.Config{
			Node: node, Policy: model.Restricted, Mix: mix, Loads: []float64{60}, Seeds: 2, Warmup: 20, Arrivals: 50,
			Ways: simulate.Ways(),
		})
		ready(t, err)
		text, err := json.Marshal(report)
		ready(t, err)
		validate(t, "simulate", string(text))
	}
}

// TestDocumentsOfANode: the same for the output on a node with plugins, and in a pod.
func TestDocumentsOfANode(t *testing.T) {
	t.Parallel()
	s := theCluster(t)
	kubeconfig := s.start()
	_, stdout, _ := plugin(kubeconfig, "status", "-o", "json")
	validate(t, "cluster-status", stdout)
	_, stdout, _ = plugin(kubeconfig, "explain", "train-0", "-o", "json")
	validate(t, "explain", stdout)
	runDir := filepath.Join(s.root, "run")
	validate(t, "status", succeed(t, "status", "-o", "json", "--run-dir", runDir, "--kubelet-dir", s.root))

	node := layOut(t, sysfs(t, "oci-mi300x-derived", 4))
	node.write("kubelet/config.yaml", plainKubelet)
	_, stdout, _ = run(node.command("-o", "json")...)
	validate(t, "doctor", stdout)
	if !strings.Contains(stdout, `"severity"`) {
		t.Errorf("doctor finds nothing: %s", stdout)
	}
}

// TestDocumentOfAPod sets environment variables, so it is not parallel.
func TestDocumentOfAPod(t *testing.T) {
	pod := newPod(t, "oci-mi300x-derived", 1).amd(ociGPU0, ociGPU1).vfs(ociVF0, ociVF1)
	_, stdout, _ := pod.verify("-o", "json")
	validate(t, "verify", stdout)
}

// TestPairsDocument: the pairs file of containers.
func TestPairsDocument(t *testing.T) {
	t.Parallel()
	address, err := topology.ParseAddress(ociVF0)
	ready(t, err)
	vf := pairs.VF{ID: ociVF0, Address: address, Resource: "tandem.dev/rdma_vf", RDMA: "mlx5_0"}
	f := pairs.New([]pairs.VF{vf})
	f.Pairs = append(f.Pairs, pairs.Pair{
		GPU: &pairs.GPU{ID: "a", Address: address, Resource: "amd.com/gpu"}, VF: vf, Distance: "PIX", Bridges: 1,
		Switch: &address,
	})
	name := filepath.Join(t.TempDir(), "pairs.json")
	ready(t, f.Write(system.Disk{}, name))
	content, err := os.ReadFile(name)
	if err != nil || !json.Valid(bytes.TrimSpace(content)) {
		t.Fatal(err)
	}
	validate(t, "pairs", string(content))
}
