// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// TestScheduler packs a program in the scheduler's place: to build that takes minutes.
func TestScheduler(t *testing.T) {
	dir := t.TempDir()
	program, to := filepath.Join(dir, "tandem-scheduler"), filepath.Join(dir, "image.tar")
	build := exec.Command("go", "build", "-o", program, "./cmd/config-manager")
	build.Dir = filepath.Join("..", "..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var out bytes.Buffer
	err := run([]string{"--scheduler", program, "--tag", "example/tandem-scheduler:v1", "--tarball", to}, &out)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "example/tandem-scheduler:v1@sha256:") {
		t.Errorf("got %s", &out)
	}
	image, err := tarball.ImageFromPath(to, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Config; got.User != "65532" || got.Entrypoint[0] != "tandem-scheduler" ||
		got.Labels[labelVersion] == "" {
		t.Errorf("got %+v", got)
	}
}

func TestSchedulerOfTwoArchitectures(t *testing.T) {
	own, other, to := programs(t), foreign(t), filepath.Join(t.TempDir(), "image.tar")
	ready(t, run([]string{
		"--scheduler", filepath.Join(own, "tandem") + "," + filepath.Join(other, "tandem"),
		"--tag", "registry.example/tandem-scheduler:v1", "--tarball", to,
	}, t.Output()))
	checkArchitectures(t, to, "registry.example/tandem-scheduler:v1")
}
