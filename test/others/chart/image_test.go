// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/version"
)

// TestImage: a chart of a version takes the image of that version, unless values say which.
func TestImage(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	for values, want := range map[string]string{
		"":                                "ghcr.io/tandem-k8s/tandem:" + version.Tag(version.Of(nil)),
		"image: {tag: v1}":                "ghcr.io/tandem-k8s/tandem:v1",
		"image: {digest: " + digest + "}": "ghcr.io/tandem-k8s/tandem:" + version.Of(nil) + "@" + digest,
		"image: {repository: registry.example/tandem, tag: v1}": "registry.example/tandem:v1",
	} {
		rendered, err := render(t, values)
		if err != nil || strings.Count(rendered, "image: "+want+"\n") != 2 {
			t.Errorf("%q: %v, want the image %s twice:\n%s", values, err, want, rendered)
		}
	}
}
