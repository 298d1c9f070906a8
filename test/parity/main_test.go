package main

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// programs are the two built plugins; built once, since that is what takes long.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "parity")
	if err != nil {
		return "", err
	}
	output, err := exec.Command("go", "build", "-buildvcs=false", "-o", dir+"/", "../../cmd/tandem-gpu",
		"../../cmd/tandem-rdma").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, output)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := programs(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}
