// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// published are the flags of the output as ResourceSlices.
type published struct {
	config     string
	noCounters bool
	perPF      int
}

// ofSlices are their names.
var ofSlices = []string{"config", "no-counters", "vfs-per-pf"}

func (p *published) register(flags *pflag.FlagSet) {
	flags.StringVar(&p.config, "config", "",
		"with -o resourceslices: config.json of the SR-IOV network device plugin, to select VFs "+
			"(default all VFs of NICs with RDMA)")
	flags.BoolVar(&p.noCounters, "no-counters", false,
		"with -o resourceslices: omit shared counters, for Kubernetes 1.34 and 1.35 or without the feature gate "+
			"DRAPartitionableDevices")
	flags.IntVar(&p.perPF, "vfs-per-pf", pool.DefaultVFsPerPF,
		"with -o resourceslices: maximum number of VFs of a PF, 0 for all")
}

// check rejects the flags for other formats, and invalid values.
func (p *published) check(flags *pflag.FlagSet, format string) error {
	for _, name := range ofSlices {
		if flags.Changed(name) && format != asSlice {
			return cli.Usage("--%s belongs to -o %s", name, asSlice)
		}
	}
	if p.perPF < 0 {
		return cli.Usage("--vfs-per-pf %d: want 0, for all, or more", p.perPF)
	}
	return nil
}

// write writes the ResourceSlices of a machine as YAML, and notes on the omitted parts.
func (p *published) write(out, notes io.Writer, n *machine.Node, from *machine.Source) error {
	inventory, err := n.Inventory(p.config, from)
	if err != nil {
		return err
	}
	built := pool.Build(inventory, pool.Options{
		Counters: !p.noCounters, Taints: !p.noCounters, VFsPerPF: p.perPF,
	})
	for _, note := range built.Notes {
		fmt.Fprintln(notes, "note:", note)
	}
	for i, object := range built.ResourceSlices(from.Title()) {
		text, err := yamlOf(object)
		if err != nil {
			return fmt.Errorf("write %s: %w", object.Name, err)
		}
		if i > 0 {
			fmt.Fprintln(out, "---")
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// yamlOf returns an object as YAML. Device names may contain characters that neither YAML nor a terminal
// allows unescaped.
func yamlOf(object any) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML([]byte(cli.PrintableLines(string(text))))
}
