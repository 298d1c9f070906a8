// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tandem-k8s/tandem/test/known"
)

// TestValuesStayStrings: the schema accepts no values whose objects the API server refuses. Digits alone are
// a legal name; without quotes they are a number in YAML.
func TestValuesStayStrings(t *testing.T) {
	const unquoted, twice = "strings of the values are rendered without quotes", "a label is rendered twice"
	for _, c := range []struct{ name, fault, values string }{
		{"names with letters", "", `{serviceAccount: {name: a-1}, rdma: {existingConfigMap: b-1}}`},
		{"service account", unquoted, `serviceAccount: {name: "456"}`},
		{"configuration of the VFs", unquoted, `rdma: {existingConfigMap: "7000"}`},
		{"configurations of the VFs", unquoted, `rdma: {configs: {name: "7000"}}`},
		{"configuration of the GPUs", unquoted, `gpu: {existingConfigMap: "12"}`},
		{"topology file", unquoted, `topologyFile: {existingConfigMap: "12"}`},
		{"runtime class", unquoted, `gpu: {runtimeClassName: "1"}`},
		{"priority class", unquoted, `priorityClassName: "99"`},
		{
			"priority class of the scheduler", unquoted,
			`{publish: [tandem], scheduler: {enabled: true, priorityClassName: "99"}}`,
		},
		{"annotation", unquoted, `gpu: {podAnnotations: {example.com/a: 1}}`},
		{"label in mode dra", unquoted, `{mode: dra, dra: {podLabels: {example.com/a: true}}}`},
		{"label of the chart", twice, `gpu: {podLabels: {app.kubernetes.io/version: mine}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.fault != "" {
				known.Fault(t, c.fault, `(?s)refused: .*(cannot unmarshal (number|bool)|already)`)
			}
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
