// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/coordination/version"
	"github.com/tandem-k8s/tandem/test/docs"
	"github.com/tandem-k8s/tandem/test/golden"
)

// cases are the values in testdata, by name.
func cases(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("values in testdata: %q, %v", files, err)
	}
	all := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".values.yaml")] = string(content)
	}
	return all
}

func TestGolden(t *testing.T) {
	for name, values := range cases(t) {
		got, err := render(t, values)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got = strings.ReplaceAll(got, version.Of(nil), "VERSION") // a release changes nothing here
		file := filepath.Join("testdata", name+".golden.yaml")
		golden.Check(t, file, got)
	}
}

// TestBaseIsTheDefault compares what the chart renders without values with what kustomize builds of the
// daemons and of the policies, which Kubernetes 1.28 and 1.29 do not know.
func TestBaseIsTheDefault(t *testing.T) {
	rendered, err := render(t, "")
	if err != nil {
		t.Fatal(err)
	}
	base := kustomize(t, "../../../deployments/base") + "---\n" + kustomize(t, "../../../deployments/alignment")
	same(t, unprefixed(parse(t, base)), unprefixed(parse(t, rendered)))
}

// TestDRAIsTheChartsMode: the same for mode dra.
func TestDRAIsTheChartsMode(t *testing.T) {
	both := draManifests(t)
	for _, o := range both["chart"] {
		if o.at("kind") == "ResourceClaimTemplate" {
			delete(o["metadata"].(map[string]any), "namespace")
		}
	}
	same(t, both["kustomize"], both["chart"])
}

func same(t *testing.T, base, chart []object) {
	t.Helper()
	for _, o := range slices.Concat(chart, base) {
		plain(t, o)
	}
	if diff := cmp.Diff(base, chart); diff != "" {
		t.Errorf("what kustomize builds and what the chart renders (-base +chart):\n%s", diff)
	}
}

// plain takes out what a chart and a base say in different ways: labels, the mark of the configuration, the
// layout of JSON and YAML, and the order of flags, mounts and volumes.
func plain(t *testing.T, o object) {
	t.Helper()
	for _, path := range [][]string{{"metadata"}, {"spec", "selector"}, {"spec", "template", "metadata"}} {
		if fields, ok := o.at(path...).(map[string]any); ok {
			delete(fields, "labels")
			delete(fields, "matchLabels")
			if annotations, ok := fields["annotations"].(map[string]any); ok {
				delete(annotations, "tandem.dev/config")
				if len(annotations) == 0 {
					delete(fields, "annotations")
				}
			}
		}
	}
	if data, ok := o.at("data").(map[string]any); ok {
		for key, text := range data {
			var value any
			if err := yaml.Unmarshal([]byte(text.(string)), &value); err != nil {
				t.Fatal(err)
			}
			data[key] = value
		}
	}
	if spec, ok := o.at("spec", "template", "spec").(map[string]any); ok {
		container := spec["containers"].([]any)[0].(map[string]any)
		for _, list := range [][]any{
			spec["volumes"].([]any), container["args"].([]any), container["volumeMounts"].([]any),
		} {
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		}
	}
}

func text(value any) string {
	content, _ := json.Marshal(value) // of YAML
	return string(content)
}

func TestLint(t *testing.T) {
	for name, values := range everyValues(t) {
		given := map[string]any{}
		if err := yaml.Unmarshal([]byte(values), &given); err != nil {
			t.Fatal(err)
		}
		for _, message := range lint.RunAll(chartDir, given, namespace).Messages {
			if !strings.Contains(message.Error(), "icon is recommended") {
				t.Errorf("%s: %v", name, message)
			}
		}
	}
}

// TestWrongValues: the schema names the value.
func TestWrongValues(t *testing.T) {
	for values, want := range map[string]string{
		"gpu: {vendor: intel}":                               "/gpu/vendor",
		"topologyFile: {hostPath: topo.xml}":                 "/topologyFile/hostPath",
		"topologyFile: {hostPath: /a, existingConfigMap: b}": "/topologyFile",
		"gpu: {pulse: -1}":                                   "/gpu/pulse",
		"intent: [kublet]":                                   "/intent/0",
		"intent: [api-server]":                               "/intent/0",
		"alignment: strict":                                  "/alignment",
		"alignmentPolicy: {nodes: refuse}":                   "/alignmentPolicy/nodes",
		"alignmentOptOut: all":                               "/alignmentOptOut",
		"deviceAnnotations: [Team]":                          "/deviceAnnotations/0",
		"log: {level: 10}":                                   "/log/level",
		"rdma: {exclude: true}":                              "additional properties 'exclude' not allowed",
		"kubeletDir: var/lib/kubelet":                        "/kubeletDir",
		"rdma: {config: {resourceList: []}}":                 "/rdma/config/resourceList",
		"updateStrategy: {type: OnDelete, x: true}":          "",
		"image: {tag: 1}":                                    "/image/tag",
		"image: {tag: 0.1.0+1}":                              "/image/tag",
		"image: {digest: sha256:1}":                          "/image/digest",
		"metrics: {port: 0}":                                 "/metrics/port",
		"metrics: {hostAddress: ''}":                         "/metrics/hostAddress",
		"metrics: {podMonitor: {interval: often}}":           "/metrics/podMonitor/interval",
		"livenessProbe: {httpGet: {port: 1}}":                "/livenessProbe",
		"rdma: {exports: {variables: [NCCL]}}":               "/rdma/exports/variables/0",
		"gpu: {deviceListStrategy: cdi}":                     "/gpu/deviceListStrategy",
		"gpu: {devRoot: dev}":                                "/gpu/devRoot",
		"rdma: {config: {resourceList: null}}":               "/rdma/config",
		"rdma: {configs: {map: {a: {resourceList: []}}}}":    "/rdma/configs/map/a",
		"rdma: {configs: {map: {'a/b': {configList: [{resourceName: x}]}}}}": "invalid " +
			"propertyName 'a/b'",
		"rdma: {configs: {fallbackStrategies: [empty]}}": "/rdma/configs/fallbackStrategies/0",
		"gpu: {configs: {fallbackStrategies: [any]}}":    "/gpu/configs/fallbackStrategies/0",
		"gpu: {configs: {map: {a: {version: v1}}}}":      "/gpu/configs/map/a",
		"gpu: {configs: {map: {a: '{'}}}":                "gpu.configs.map.a: not an object in YAML: ",
		"gpu: {pulze: 1}":                                "additional properties 'pulze' not allowed",
		"mode: both":                                     "/mode",
		"dra: {vfsPerPF: -1}":                            "/dra/vfsPerPF",
		"dra: {gpuResources: [gpu]}":                     "/dra/gpuResources/0",
		"dra: {claimTemplates: {namespaces: [Team]}}":    "/dra/claimTemplates/namespaces/0",
		"scheduler: {name: Mine}":                        "/scheduler/name",
		"scheduler: {replicas: 0}":                       "/scheduler/replicas",
		"scheduler: {weight: 0}":                         "/scheduler/weight",
		"scheduler: {image: {digest: latest}}":           "/scheduler/image/digest",
		"scheduler: {enable: true}":                      "additional properties 'enable' not allowed",
	} {
		_, err := render(t, values)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", values, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want an error about %s", values, err, want)
		}
	}
}

// TestContradictions: values that would go unheard beside others are refused with a sentence.
func TestContradictions(t *testing.T) {
	for values, want := range map[string]string{
		"metrics: {podMonitor: {enabled: true}}": "metrics.podMonitor.enabled: " +
			"there are no metrics to scrape without metrics.enabled",
		"rdma: {existingConfigMap: mine, exports: {pairs: true}}": "rdma.exports: " +
			"the chart does not write the configuration mine of rdma.existingConfigMap",
		"rdma: {existingConfigMap: mine, exports: {variables: [NCCL_IB_HCA]}}": "set the key \"tandem\" " +
			"of its resources there",
		"rdma: {enabled: false, existingConfigMap: mine, exports: {alias: true}}": "rdma.exports",
		"gpu: {deviceListStrategy: 'envvar,cdi-cri'}": "gpu.deviceListStrategy: a CDI specification names " +
			"the driver's files, which tandem-gpu has to see: set gpu.driverRoot too",
		"{mode: dra, intent: [kubelet]}":         "intent: that is for the device plugins",
		"{mode: dra, deviceAnnotations: [team]}": "deviceAnnotations: that is for the device plugins",
		"{mode: dra, publish: [tandem]}": "publish: that is for the device plugins: in mode dra " +
			"a node publishes",
		"{mode: dra, publishKubeletDir: true}":    "publish: that is for the device plugins",
		"{mode: dra, preferredAllocation: false}": "preferredAllocation: that is for the device plugins",
		"{mode: dra, rdma: {enabled: false}}": "rdma.enabled: " +
			"in mode dra one daemon publishes GPUs and VFs",
		"{mode: dra, gpu: {vendor: nvidia}}": "gpu.driverRoot: " +
			"in mode dra NVIDIA's GPUs are given by CDI",
		"{mode: dra, gpu: {vendor: nvidia, enabled: false}}": "",
		"{mode: dra, alignmentOptOut: [team]}":               "",
		"{mode: dra, alignmentPolicy: {nodes: deny}}": "alignmentPolicy.nodes: that is for the device " +
			"plugins",
		"{mode: dra, rdma: {existingConfigMap: m}}": "dra.vfResources: " +
			"the chart does not read the configuration m of rdma.existingConfigMap",
		"{mode: dra, rdma: {existingConfigMap: m}, dra: {vfResources: [a.b/c]}}": "",
		"gpu: {configs: {name: a, map: {b: c}}}": "gpu.configs: name is an existing ConfigMap, " +
			"and map makes one",
		"gpu: {configs: {name: a}, existingConfigMap: b}": "gpu.configs: set either that or " +
			"gpu.existingConfigMap",
		"gpu: {vendor: amd, configs: {name: a}}":  "gpu.configs: AMD's plugin has no file of configuration",
		"{mode: dra, rdma: {configs: {name: a}}}": "rdma.configs: that is for the device plugins",
		"rdma: {configs: {name: a}, existingConfigMap: b}": "rdma.configs: set either that or " +
			"rdma.existingConfigMap",
		"rdma: {configs: {name: a}, exports: {pairs: true}}": "rdma.exports: " +
			"the chart does not write the configurations a of rdma.configs.name",
		"scheduler: {enabled: true}": "scheduler.enabled: tandem-scheduler goes by the NodeTopology that each " +
			"node publishes, and waits for its definition: add tandem to publish (publish={tandem})",
		"{publish: [nrt, nfd], scheduler: {enabled: true}}": "add tandem to publish",
		"{mode: dra, publish: [tandem], scheduler: {enabled: true}}": "scheduler.enabled: " +
			"that is for the device plugins",
		"{publish: [nrt, tandem], scheduler: {enabled: true}}": "",
		"gpu: {deviceListStrategy: cdi-cri, driverRoot: /}":    "",
		"gpu: {vendor: amd, deviceListStrategy: cdi-cri}":      "",
		"metrics: {enabled: true, podMonitor: {enabled: true}}": "metrics.podMonitor.enabled: " +
			"Prometheus does not " +
			"reach 127.0.0.1",
		"{mode: dra, metrics: {enabled: true, podMonitor: {enabled: true}}}": "metrics." +
			"hostAddress=0.0.0.0",
		"metrics: {enabled: true, hostAddress: '[::1]', podMonitor: {enabled: true}}":         "reach [::1]",
		"metrics: {enabled: true, hostAddress: '[::]', podMonitor: {enabled: true}}":          "",
		"{rdma: {hostNetwork: false}, metrics: {enabled: true, podMonitor: {enabled: true}}}": "",
		"rdma: {existingConfigMap: mine, exports: {pairs: false, variables: []}}":             "",
		"rdma: {exports: {pairs: true, variables: [NCCL_IB_HCA, UCX_NET_DEVICES]}}":           "",
		"{rdma: {existingConfigMap: mine}, metrics: {podMonitor: {enabled: false}}}":          "",
	} {
		_, err := render(t, values)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// TestFlagsExist: every flag that a manifest sets is one of the program's.
func TestFlagsExist(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", bin+"/", "./cmd/tandem-gpu",
		"./cmd/tandem-rdma", "./cmd/tandem-dra", "./cmd/config-manager")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	known := map[string][]string{}
	for _, program := range []string{"tandem-gpu", "tandem-rdma", "tandem-dra", "config-manager"} {
		help, err := exec.Command(filepath.Join(bin, program), "--help").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`).
			FindAllStringSubmatch(string(help), -1) {
			known[program] = append(known[program], flag[1])
		}
	}
	documented, err := docs.Of("../../..", "tandem-gpu")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range documented {
		if out, err := exec.Command(filepath.Join(bin, c.Program), c.Args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", c, err, out)
		}
	}
	var streams []string
	for _, dir := range []string{"base", "privileged", "dra"} {
		streams = append(streams, kustomize(t, "../../../deployments/"+dir))
	}
	for _, values := range everyValues(t) {
		rendered, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, rendered)
	}
	checked := 0
	for _, stream := range streams {
		for _, o := range parse(t, stream) {
			containers, _ := o.at("spec", "template", "spec", "containers").([]any)
			first, _ := o.at("spec", "template", "spec", "initContainers").([]any)
			for _, c := range slices.Concat(first, containers) {
				c := c.(map[string]any)
				if c["name"] == "tandem-scheduler" {
					continue // kube-scheduler's flags, and a module of its own, which takes minutes to build
				}
				program := c["command"].([]any)[0].(string)
				for _, arg := range c["args"].([]any) {
					name, _, _ := strings.Cut(strings.TrimLeft(arg.(string), "-"), "=")
					checked++
					if !slices.Contains(known[program], name) {
						t.Errorf("%s sets --%s, which %s does not have", o.name(), name, program)
					}
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d flags were checked", checked)
	}
}
