// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/tandem-k8s/tandem/coordination/version"
)

// TestLabels: an image says what it is, and so does the index of two, which is all that a registry's page
// shows.
func TestLabels(t *testing.T) {
	own, other := programs(t), foreign(t)
	file, _ := packImage(t, own, standIn(own))
	image, err := tarball.ImageFromPath(file, nil)
	ready(t, err)
	config, err := image.ConfigFile()
	ready(t, err)
	file, _ = packImage(t, own+","+other, standIn(own)+","+standIn(other))
	dir := filepath.Join(t.TempDir(), "oci")
	unpack(t, file, dir)
	outer, err := layout.ImageIndexFromPath(dir)
	ready(t, err)
	named, err := outer.IndexManifest()
	ready(t, err)
	inner, err := outer.ImageIndex(named.Manifests[0].Digest)
	ready(t, err)
	manifest, err := inner.IndexManifest()
	ready(t, err)
	for what, labels := range map[string]map[string]string{
		"image": config.Config.Labels, "index": manifest.Annotations,
	} {
		for _, key := range []string{"title", "source", "licenses", "version"} {
			if labels["org.opencontainers.image."+key] == "" {
				t.Errorf("the %s has no label %s: %v", what, key, labels)
			}
		}
		if labels[labelVersion] != version.Of(nil) {
			t.Errorf("the %s is of version %s, the programs of %s", what, labels[labelVersion], version.Of(nil))
		}
	}
}

func TestDefaultTag(t *testing.T) {
	bin := programs(t)
	var out bytes.Buffer
	ready(t, run([]string{"--bin", bin, "--busybox", standIn(bin), "--tag", "registry.example:5000/tandem",
		"--tarball", filepath.Join(t.TempDir(), "image.tar")}, &out))
	if want := "registry.example:5000/tandem:" + version.Tag(version.Of(nil)) + "@sha256:"; !strings.Contains(
		out.String(), want) {
		t.Errorf("printed %s, want %s", &out, want)
	}
}
