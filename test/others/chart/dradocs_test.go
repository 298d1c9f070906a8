// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

// draPage is the page about mode dra.
func draPage(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("../../../docs/dra.md")
	ready(t, err)
	return string(content)
}

// TestSnippetsOfDRA: the page's YAML is YAML, and what it asks for in claims is known and not too much.
func TestSnippetsOfDRA(t *testing.T) {
	snippets := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(draPage(t), -1)
	if len(snippets) < 4 {
		t.Fatalf("%d snippets", len(snippets))
	}
	objects := install(t, ofDRA)
	known, templates := classes(t, objects), claimTemplates(t, objects)
	for _, s := range snippets {
		var any map[string]any
		if err := yaml.UnmarshalStrict([]byte(s[1]), &any); err != nil {
			t.Errorf("%v:\n%s", err, s[1])
		}
		for _, name := range regexp.MustCompile(`resourceClaimTemplateName: ([\w-]+)`).FindAllStringSubmatch(s[1], -1) {
			if _, ok := templates[name[1]]; !ok {
				t.Errorf("there is no template %s", name[1])
			}
		}
		if any["devices"] == nil {
			continue
		}
		var claim resourceapi.ResourceClaimSpec
		if err := yaml.UnmarshalStrict([]byte(s[1]), &claim); err != nil {
			t.Errorf("%v:\n%s", err, s[1])
		}
		for _, r := range claim.Devices.Requests {
			class := r.Exactly.DeviceClassName
			if _, ok := known[class]; !ok && strings.HasSuffix(class, "tandem.dev") {
				t.Errorf("there is no class %s", class)
			}
		}
	}
}

// TestPageOfDRANamesAll: the classes, the templates and the attributes.
func TestPageOfDRANamesAll(t *testing.T) {
	page := draPage(t)
	// "`tandem-pairs-1`, `-2`" and "`tandem-pairs-4-numa` (also 2, 8)" are sizes of one template.
	shape := regexp.MustCompile(`-\d+(-|$)`)
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`(tandem-[\\w-]+)`").FindAllStringSubmatch(page, -1) {
		named[shape.ReplaceAllString(m[1], "-N$1")] = true
	}
	objects := install(t, ofDRA)
	for name := range claimTemplates(t, objects) {
		if !named[shape.ReplaceAllString(name, "-N$1")] {
			t.Errorf("the page does not name %s", name)
		}
	}
	for name, class := range classes(t, objects) {
		if offered := class.Spec.ExtendedResourceName; !strings.Contains(page, "`"+name+"`") &&
			(offered == nil || !strings.Contains(page, *offered)) {
			t.Errorf("the page does not name %s", name)
		}
	}
	for _, machine := range []string{"oci-mi300x-derived", "amd-mi300x-smc-thor2-cpx-derived"} {
		for _, d := range devices(t, machine, 4, true) {
			for name := range d.Attributes {
				domain, own, found := strings.Cut(string(name), "/")
				if !found {
					own = domain
				}
				if !strings.Contains(page, "`"+own+"`") && !strings.Contains(page, "/"+own+"`") {
					t.Errorf("the page does not name the attribute %s of %s", name, d.Name)
				}
			}
		}
	}
}

// TestVFsAloneOfDRA: one VF of each PF is only in the pair of its switch's GPU, unless the PF has one VF
// only, as the page says.
func TestVFsAloneOfDRA(t *testing.T) {
	if !strings.Contains(draPage(t), "publishes n-1 VFs alone for each PF") {
		t.Error("the page does not have the number of VFs alone")
	}
	for vfsPerPF, want := range map[int]int{1: 8, 2: 8, 4: 24} {
		count := map[string]int{}
		for _, d := range devices(t, "oci-mi300x-derived", vfsPerPF, true) {
			count[*d.Attributes["type"].StringValue]++
		}
		if count["vf"] != want || count["pair"] != 8 {
			t.Errorf("with %d VFs of each PF there are %v, want %d VFs alone", vfsPerPF, count, want)
		}
	}
}
