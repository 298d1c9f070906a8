// SPDX-License-Identifier: Apache-2.0

// Package machines holds recorded machines: real GPU servers, and two composed of several recordings, as
// files of package recording. The comments at the head of each file name its origin and its invented parts.
//
// expect.json holds, for every GPU, the distance of the nearest RDMA functions and their list, computed
// independently of this repository's code.
package machines

import (
	"bytes"
	"embed"
	"fmt"
	"path"
	"strings"

	"github.com/tandem-k8s/tandem/topology/recording"
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

// Load returns a machine with this many VFs on each of its RDMA-capable PFs. A machine that was recorded with
// VFs gets no further ones.
func Load(name string, vfsPerPF int) (*recording.Machine, error) {
	text, err := files.ReadFile(name + ".txt")
	if err != nil {
		return nil, fmt.Errorf("load machine %q: there are %s", name, strings.Join(Names(), ", "))
	}
	machine, err := recording.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("load machine %s: %w", name, err)
	}
	if machine, err = addVFs(machine, vfsPerPF); err != nil {
		return nil, fmt.Errorf("load machine %s: %w", name, err)
	}
	return machine, nil
}
