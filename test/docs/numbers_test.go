// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/topology"
)

// numbers are numbers in the documents and the code that has them. The groups of both patterns, if there are
// any, match the same text.
var numbers = []struct{ document, says, source, has string }{
	{"CONTRIBUTING.md", `answers come in (\d+) ms`, boundedCalls, answerTime},
	{"docs/how-it-works.md", `within (\d+) ms`, boundedCalls, answerTime},
	{"docs/troubleshoot.md", `an answer in (\d+) ms`, boundedCalls, answerTime},
	{"CONTRIBUTING.md", `at most (\d+) columns`, ".golangci.yml", `line-length: (\d+)`},
	{"docs/cluster.md", `each change within 300 ms`, publisher, `(?s)Coalesce = 200 \* time.Mill.*Jitter = 100 \* time.Mill`},
	{"docs/cluster.md", `every five minutes restores`, publisher, `recheck = 5 \* time.Minute`},
	{"docs/cluster.md", `memory limit of (\d+) GiB`, values, `limits: {memory: (\d+)Gi}`},
	{"docs/cluster.md", `starts two replicas`, values, `replicas: 2 `},
	{"docs/cluster.md", `after one minute`, "deployments/descheduler/values.yaml", `minPodLifetimeSeconds: 60 `},
	{"docs/cluster.md", "not filtered \\(metric `(\\w+)`", "cmd/tandem-scheduler/plugin/published.go", `Name: "(\w+)"`},
	{"docs/deployers-charts.md", `Above 16,384 time-sliced`, "coordination/device/resources.go", `MaxDevices +=  ?1 << 14`},
	{"docs/dra.md", `At most (\d+) devices of a class`, "deployments/dra/counts.yaml", `sum\(\) > (\d+)\)`},
	{"docs/security.md", `more than (\d+) equal devices`, "deployments/dra/counts.yaml", `\)\.max\(\) > (\d+)\)`},
	{"docs/dra.md", `At most (\d+) VFs of each PF`, values, `vfsPerPF: (\d+)`},
	{"docs/dra.md", "`DRAPartitionableDevices` \\| 1\\.(\\d+) ", "plugins/dra/gates.go", `onFrom = version.MajorMinor\(1, (\d+)\)`},
	{"docs/dra.md", `Kubernetes \| 1.28 and later \| 1\.(\d+) and later`, templates + "_dra.tpl", `"<1\.(\d+)\.0-0"`},
	{"docs/health.md", `every (\d+) seconds`, "plugins/health/config.go", `Interval: (\d+) \* time.Second`},
	{"docs/health.md", `a minute after the last cause`, "plugins/health/config.go", `Quiet: time.Minute`},
	{"docs/install.md", `Exit code (\d) means errors or warnings`, exitCodes, `ExitFound   = (\d)`},
	{"docs/install.md", `, (\d) that data could not be read`, exitCodes, `ExitUnknown = (\d)`},
	{"docs/qualify.md", `Exit code (\d) means that a part failed`, exitCodes, `ExitFound   = (\d)`},
	{"docs/qualify.md", `, (\d) that evidence is missing`, exitCodes, `ExitUnknown = (\d)`},
	{"docs/tools.md", `Exit code (\d) means that the kubelet`, exitCodes, `ExitFound   = (\d)`},
	{"docs/install.md", `from Prometheus to port (\d+) \(`, values, `port: (\d+) # must be free`},
	{"docs/install.md", `from Prometheus to port (\d+) \|`, "deployments/scheduler/deployment.yaml", `port: (\d+), scheme`},
	{"docs/install.md", `On Kubernetes 1\.(\d+) and later the API`, templates + "alignment-policies.yaml", `">=1\.(\d+)\.0-0"`},
	{"docs/install.md", `ends after five minutes`, values, `"helm test" ends after its --timeout \(5m\)`},
	{"docs/limits.md", `exceeds (\d+) MiB`, podStream, `MaxPods = (\d+) << 20`},
	{"docs/limits.md", `(\d+) MiB for a pod`, podStream, `maxPod  = (\d+) << 20`},
	{"docs/limits.md", `131,072 containers`, "coordination/intent/list.go", `maxKept  = 1 << 17 `},
	{"docs/performance.md", `limit of (\d+) MiB`, values, `limits: {memory: (\d+)Mi}`},
	{"docs/support.md", `managers \(1\.37\.(\d+)\)`, "test/kubernetes/go.mod", `kubernetes v1\.37\.(\d+)\n`},
	{"docs/support.md", `managers \(1\.36\.(\d+)\)`, "test/kubernetes/go.v1.36.mod", `kubernetes v1\.36\.(\d+)\n`},
	{"docs/tools.md", `median of (\d+) draws`, "cmd/tandem/machine/stock.go", `draws = (\d+)`},
	{"docs/tools.md", `TCP port (\d+)`, traffic, `"traffic-port", (\d+)`},
	{"docs/tools.md", "`--traffic-min` \\((\\d+)\\)", traffic, `"traffic-min", (\d+)`},
	{"docs/tools.md", "`--traffic-min-rate` \\((\\d+)\\)", traffic, `"traffic-min-rate", (\d+)`},
	{"docs/troubleshoot.md", `written within a minute`, "coordination/intent/sources.go", `lookPause   = time.Minute`},
	{"docs/tune.md", `source on 1\.(\d+) to 1\.36`, templates + "_helpers.tpl", `">=1\.(\d+)\.0-0 <1\.37\.0-0"`},
	{"docs/tune.md", `at most once a minute`, "plugins/rdma/hints.go", `decisionLasts = time.Minute`},
	{"docs/tune.md", `merges the hints within (\S+) s\.`, "coordination/kubelet/model/hinting.go", `mostMerge MergeTime = (\S+)`},
	{"SECURITY.md", `/readyz.*, port (\d+) \|`, values, `health:\n +port: (\d+)`},
	{"SECURITY.md", `/metrics.*, port (\d+), off`, values, `port: (\d+) # must be free`},
	{"SECURITY.md", `port (\d+) of .tandem-scheduler`, "deployments/scheduler/deployment.yaml", `port: (\d+), scheme`},
}

// Files and patterns of numbers.
const (
	boundedCalls = "coordination/system/bounded.go"
	answerTime   = `QuestionLimit = (\d+) \* time.Millisecond`
	exitCodes    = "cmd/tandem/cli/root.go"
	podStream    = "coordination/kubelet/podstream.go"
	publisher    = "coordination/publish/publisher.go"
	templates    = "deployments/helm/tandem/templates/"
	traffic      = "cmd/tandem/verify/command.go"
	values       = "deployments/helm/tandem/values.yaml"
)

// TestNumbers compares numbers of the documents with the code.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, n := range numbers {
		text := strings.Join(strings.Fields(read(t, n.document)), " ")
		said := regexp.MustCompile(n.says).FindStringSubmatch(text)
		has := regexp.MustCompile(n.has).FindStringSubmatch(read(t, n.source))
		if len(said) == 0 || len(has) == 0 || !slices.Equal(said[1:], has[1:]) {
			t.Errorf("%s says %q, %s has %q", n.document, said, n.source, has)
		}
	}
}

// TestRules: the rules of the choice in docs/how-it-works.md have the titles and the order of the criteria of
// package placement.
func TestRules(t *testing.T) {
	t.Parallel()
	titles := func(file, pattern string) (all []string) {
		for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1) {
			all = append(all, found[1]+found[2])
		}
		return all
	}
	want := titles("topology/placement/placement.go", `(?m)^//  (\d+\. )([A-Z][^.,]*)`)
	got := titles("docs/how-it-works.md", `(?m)^(\d+\. )\*\*([^*:,]*)[:,]?\*\*`)
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 10 {
		t.Errorf("docs/how-it-works.md has other rules (-placement +page):\n%s", diff)
	}
}

// TestMergeTimes: the times of the kubelet's merge in docs/limits.md are those of the model, within a half.
// Package test/kubernetes/kubelet compares the model with the kubelet.
func TestMergeTimes(t *testing.T) {
	t.Parallel()
	units := map[string]float64{"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60}
	cell := regexp.MustCompile(`^([\d.]+) (µs|ms|s|min)`)
	count := 0
	for line := range strings.Lines(read(t, "docs/limits.md")) {
		first, cells := rowOf(line)
		nodes, err := strconv.Atoi(first)
		for resources, text := range cells {
			found := cell.FindStringSubmatch(text)
			if err != nil || found == nil {
				continue
			}
			count++
			value, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			measured := value * units[found[2]]
			if estimate := mergeTime(nodes, resources); estimate < measured/1.5 || estimate > measured*1.5 {
				t.Errorf("%d NUMA nodes, %d resources: the page says %s, the model %g s", nodes, resources, text,
					estimate)
			}
		}
	}
	if count < 9 {
		t.Errorf("docs/limits.md has %d times", count)
	}
	for nodes, resources := range map[int]int{6: 3, 4: 4} { // docs/tune.md: more than six, more than four
		if mergeTime(nodes, resources) > 0.1 || mergeTime(nodes+1, resources) < 0.1 {
			t.Errorf("docs/tune.md: %d resources have hints on other NUMA nodes than up to %d", resources, nodes)
		}
	}
	match(t, "docs/tune.md", `(on more than six NUMA nodes, with a static memory manager too on more than four)`)
}

// mergeTime returns the model's estimate in seconds for a device of each resource, all devices free.
func mergeTime(nodes, resources int) float64 {
	demand := model.Demand{Count: 1}
	for node := range nodes {
		demand.All.Add(topology.Node(node))
		demand.Free.Add(topology.Node(node))
	}
	rule := model.Rule{Policy: model.Restricted}
	return float64(rule.MergeTime(slices.Repeat([]model.Demand{demand}, resources)...))
}

// TestNamedTests: each test and benchmark that a command in the documents selects is there.
func TestNamedTests(t *testing.T) {
	t.Parallel()
	functions := testFunctions(t)
	selected := regexp.MustCompile(`(-run|-bench|BENCH=|PLANE_RUN=)[ =]?'?\^?([A-Z]\w+)`)
	count := 0
	for _, file := range files(t) {
		for _, found := range selected.FindAllStringSubmatch(read(t, file), -1) {
			count++
			kind := "Test"
			if strings.Contains(strings.ToLower(found[1]), "bench") {
				kind = "Benchmark"
			}
			name := kind + `\w*` + strings.TrimPrefix(found[2], kind)
			if !regexp.MustCompile(`(?m)^func ` + name).MatchString(functions) {
				t.Errorf("%s: no test or benchmark matches %s", file, found[0])
			}
		}
	}
	if count < 10 {
		t.Errorf("found only %d names", count)
	}
}

// testFunctions returns the lines of all tests' functions.
func testFunctions(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, name := range repositoryFiles(t) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		for line := range strings.Lines(read(t, name)) {
			if strings.HasPrefix(line, "func ") {
				all.WriteString(line)
			}
		}
	}
	return all.String()
}

// TestMeasurementsHaveCommands: each section of docs/performance.md with a number names the command that
// measures it.
func TestMeasurementsHaveCommands(t *testing.T) {
	t.Parallel()
	sections := regexp.MustCompile(`(?m)^##+ `).Split(read(t, "docs/performance.md"), -1)[1:]
	if len(sections) < 7 {
		t.Fatalf("%d sections", len(sections))
	}
	for _, section := range sections {
		if !regexp.MustCompile("`(make|go test|bin/tandem-lab) ?").MatchString(section) {
			t.Errorf("docs/performance.md has no command for %s", section)
		}
	}
}
