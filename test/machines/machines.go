// SPDX-License-Identifier: Apache-2.0

// Package machines holds recorded machines as files of package recording: real GPU servers, and machines
// derived from several recordings or from published addresses (their names end in "derived"). Comments at the
// head of each file state its origin and any invented parts.
//
// expect.json lists the nearest RDMA functions of each GPU and their distance, computed independently of the
// code of this repository.
package machines

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/tandem-k8s/tandem/topology/recording"
	"github.com/tandem-k8s/tandem/topology/recording/sriov"
)

//go:embed *.txt
var files embed.FS

// Names returns the names of all machines, sorted.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // an embedded directory can be listed
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = strings.TrimSuffix(entry.Name(), path.Ext(entry.Name()))
	}
	return names
}

// Load returns a machine with the given number of VFs on each RDMA-capable PF. A machine recorded with VFs
// keeps the recorded VFs.
func Load(name string, vfsPerPF int) (*recording.Machine, error) {
	text, err := files.ReadFile(name + ".txt")
	if err != nil {
		return nil, fmt.Errorf("load machine %q: there are %s", name, strings.Join(Names(), ", "))
	}
	machine, err := recording.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("load machine %s: %w", name, err)
	}
	withVFs, err := sriov.AddVFs(machine, vfsPerPF)
	switch {
	case errors.Is(err, sriov.ErrHasVFs):
		return machine, nil
	case err != nil:
		return nil, fmt.Errorf("load machine %s: %w", name, err)
	default:
		return withVFs, nil
	}
}
