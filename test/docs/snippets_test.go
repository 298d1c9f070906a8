// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

var block = regexp.MustCompile("(?ms)^ *```(\\w+)\n(.*?)^ *```$")

// TestBlocks: a block of code is in a language that is checked, and what is YAML, a Job, JSON or a
// configuration of tandem-rdma can be read as that.
func TestBlocks(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	for _, file := range files(t) {
		for _, found := range block.FindAllStringSubmatch(read(t, file), -1) {
			language, text := found[1], found[2]
			count[language]++
			var err error
			switch language {
			case "yaml":
				var content any = new(map[string]any)
				if strings.Contains(text, "\nkind: Job\n") {
					content = new(batchv1.Job)
				}
				err = yaml.UnmarshalStrict([]byte(text), content)
			case "json":
				err = json.Unmarshal([]byte(text), new(map[string]any))
			case "sh", "console", "text":
			default:
				t.Errorf("%s has a block of %s, which nothing checks", file, language)
			}
			if err != nil {
				t.Errorf("%s: %v in\n%s", file, err, text)
			}
			if language == "json" && strings.Contains(text, `"resourceList"`) {
				checkPools(t, file, text)
			}
		}
	}
	if count["yaml"] < 2 || count["json"] < 2 || count["sh"] < 5 {
		t.Errorf("found only %v", count)
	}
}

// checkPools expects a configuration without a fault and without a key that nobody reads.
func checkPools(t *testing.T, where, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := pools.ReadConfig(file)
	if err != nil {
		t.Errorf("%s: %v", where, err)
	} else if len(config.Warnings) > 0 {
		t.Errorf("%s: %q", where, config.Warnings)
	}
}

// TestKeys: what stands in backquotes as a key of a pool, "key": value, is one.
func TestKeys(t *testing.T) {
	t.Parallel()
	count := 0
	for where, span := range allSpans(t) {
		if !strings.HasPrefix(span, `"`) || !strings.Contains(span, `": `) {
			continue
		}
		count++
		if !strings.HasPrefix(span, `"tandem"`) && !strings.HasPrefix(span, `"excludeTopology"`) {
			span = `"tandem": {` + span + "}"
		}
		checkPools(t, where, `{"resourceList": [{"resourceName": "vf", "selectors": {}, `+span+`}]}`)
	}
	if count < 3 {
		t.Errorf("found only %d keys", count)
	}
}

// foreign are the flags of other programs that the documents name.
var foreign = []string{
	"config-dir",                                       // the kubelet's
	"scheduler-config-file", "allowed-scheduler-names", // cluster-autoscaler's
	"kubelet-extra-args", "system-config-from-file", // of OKE's start script and gcloud
	"set", "reset-then-reuse-values", "reuse-values", // Helm's
}

// TestFlags: flags in backquotes without their program are those of one of ours.
func TestFlags(t *testing.T) {
	t.Parallel()
	source := goCode(t, "cmd", "plugins/gpu/nvidia")
	flag := regexp.MustCompile(`(?:^| )--([a-z][\w-]*)`)
	count := 0
	for where, span := range allSpans(t) {
		if !strings.HasPrefix(span, "--") {
			continue
		}
		name := flag.FindStringSubmatch(span)
		if name == nil || slices.Contains(foreign, name[1]) || strings.HasPrefix(name[1], "set-") {
			continue
		}
		count++
		if !strings.Contains(source, `"`+name[1]+`"`) {
			t.Errorf("%s: no program of ours has the flag %s", where, span)
		}
	}
	if count < 5 {
		t.Errorf("found only %d flags", count)
	}
}

// TestPaths: files and folders of the repository in backquotes are there, and so are metrics.
func TestPaths(t *testing.T) {
	t.Parallel()
	metrics := read(t, "deployments/monitoring/METRICS.md")
	path := regexp.MustCompile(`^(cmd|coordination|deployments|docs|plugins|test|topology)/[\w./*-]+$`)
	metric := regexp.MustCompile(`^tandem_[a-z_]+$`)
	count := 0
	for where, span := range allSpans(t) {
		switch {
		case path.MatchString(span):
			count++
			if found, err := filepath.Glob(filepath.Join(root, span)); err != nil || len(found) == 0 {
				t.Errorf("%s: there is no %s", where, span)
			}
		case metric.MatchString(span) && !strings.Contains(metrics, "`"+span+"`"):
			t.Errorf("%s: there is no metric %s", where, span)
		}
	}
	if count < 20 {
		t.Errorf("found only %d paths", count)
	}
}

// allSpans yields what the documents have in backquotes, with where that is.
func allSpans(t *testing.T) func(func(where, span string) bool) {
	t.Helper()
	return func(yield func(where, span string) bool) {
		for _, file := range files(t) {
			for _, found := range quoted.FindAllStringSubmatch(prose(read(t, file)), -1) {
				if !yield(file, found[1]) {
					return
				}
			}
		}
	}
}
