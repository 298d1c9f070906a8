// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
)

// Each daemon is told four fifths of the memory that it may take, whatever the values say of it.
func TestMemoryLimitIsTold(t *testing.T) {
	told := regexp.MustCompile(`GOMEMLIMIT, value: (\S+)}`)
	for values, want := range map[string][]string{
		"":          {"204MiB", "204MiB"},
		"mode: dra": {"204MiB"},
		"gpu: {resources: {limits: {memory: 1Gi}}}":                              {"819MiB", "204MiB"},
		"gpu: {resources: {limits: {memory: 1G}}}":                               {"762MiB", "204MiB"},
		"gpu: {resources: {limits: {memory: 1.5Gi}}, vendor: nvidia}":            {"1228MiB", "204MiB"},
		"gpu: {resources: {limits: {memory: 536870912}}}":                        {"409MiB", "204MiB"},
		"gpu: {resources: {limits: {memory: null}}}":                             {"204MiB"},
		"gpu: {resources: null}":                                                 {"204MiB"},
		"gpu: {env: [{name: A, value: b}]}":                                      {"204MiB", "204MiB"},
		"gpu: {enabled: false}\nrdma: {env: [{name: GOMEMLIMIT, value: 99MiB}]}": nil,
		"mode: dra\ndra: {resources: {limits: {memory: 512Mi}}}":                 {"409MiB"},
		"mode: dra\nrdma: {env: [{name: GOMEMLIMIT, value: \"off\"}]}":           nil,
		"publish: [tandem]\nscheduler: {enabled: true}": {
			"1638MiB", "204MiB", "204MiB",
		},
		"publish: [tandem]\nscheduler: {enabled: true, resources: null}":             {"204MiB", "204MiB"},
		"publish: [tandem]\nrdma: {resources: {limits: {memory: 100Mi, cpu: 100m}}}": {"204MiB", "80MiB"},
	} {
		rendered, err := render(t, values)
		if err != nil {
			t.Errorf("%s: %v", values, err)
		}
		var got []string
		for _, m := range told.FindAllStringSubmatch(rendered, -1) {
			got = append(got, m[1])
		}
		slices.Sort(got)
		slices.Sort(want)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", values, got, want)
		}
	}
}
