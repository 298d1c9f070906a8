// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/tandem-k8s/tandem/test/others/chart/render"
)

const chart = "../../../../deployments/helm/tandem"

// TestPack: Helm reads the package, which is of the version, as is the image that it installs.
func TestPack(t *testing.T) {
	const own = "0.2.0-dev+0123456789ab"
	made := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	var first, second bytes.Buffer
	if err := pack(&first, chart, own, made); err != nil {
		t.Fatal(err)
	}
	if err := pack(&second, chart, own, made); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("packed twice the chart has other bytes: %v", err)
	}
	file := filepath.Join(t.TempDir(), "tandem.tgz")
	if err := os.WriteFile(file, first.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	c, files, err := render.Files(file, "kube-system", render.Newest, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Version != own || c.Metadata.AppVersion != own || len(c.Raw) != len(source.Raw) {
		t.Errorf("version %s, appVersion %s, %d of %d files", c.Metadata.Version, c.Metadata.AppVersion, len(c.Raw),
			len(source.Raw))
	}
	if want := "image: ghcr.io/tandem-k8s/tandem:" + strings.ReplaceAll(own, "+", "_") + "\n"; !strings.Contains(
		render.Manifests(c, files), want) {
		t.Errorf("the manifests have no %s", want)
	}
}

func TestNoProgram(t *testing.T) {
	err := run(chart, "main.go", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "run make build") {
		t.Errorf("%v", err)
	}
}
