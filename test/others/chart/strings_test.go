// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestValuesStayStrings: the schema accepts no values whose objects the API server refuses. Digits alone are
// a legal name; without quotes they are a number in YAML.
func TestValuesStayStrings(t *testing.T) {
	for _, c := range []struct{ name, values string }{
		{"names with letters", `{serviceAccount: {name: a-1}, rdma: {existingConfigMap: b-1}}`},
		{"service account", `serviceAccount: {name: "456"}`},
		{"configuration of the VFs", `rdma: {existingConfigMap: "7000"}`},
		{"configurations of the VFs", `rdma: {configs: {name: "7000"}}`},
		{"configuration of the GPUs", `gpu: {existingConfigMap: "12"}`},
		{"topology file", `topologyFile: {existingConfigMap: "12"}`},
		{"runtime class", `gpu: {runtimeClassName: "1"}`},
		{"priority class", `priorityClassName: "99"`},
		{
			"priority class of the scheduler",
			`{publish: [tandem], scheduler: {enabled: true, priorityClassName: "99"}}`,
		},
		{"annotation", `gpu: {podAnnotations: {example.com/a: 1}}`},
		{"label in mode dra", `{mode: dra, dra: {podLabels: {example.com/a: true}}}`},
		{"label of the chart", `gpu: {podLabels: {app.kubernetes.io/version: mine}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			rendered, err := render(t, c.values)
			if err != nil {
				return // the schema refuses the values
			}
			api := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
				json.SerializerOptions{Yaml: true, Strict: true})
			for manifest := range strings.SplitSeq("\n"+rendered, "\n---\n") {
				if _, _, err := api.Decode([]byte(manifest), nil, nil); err != nil && strings.TrimSpace(manifest) != "" &&
					!runtime.IsNotRegisteredError(err) {
					t.Errorf("refused: %v", err)
				}
			}
		})
	}
}
