package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// verification is what a container has, and whether it is what it should be, as JSON has it.
type verification struct {
	GPUs      []containerGPU `json:"gpus"`
	VFs       []containerVF  `json:"vfs"`
	Pairs     []pairEntry    `json:"pairs"`
	InOrder   bool           `json:"in_order"`   // as many VFs as GPUs, and the i-th VF pairs with the i-th GPU
	PairsFile string         `json:"pairs_file"` // "agrees", "differs" or "absent"
	Failures  []string       `json:"failures"`
}

// verifier is the command line of verify.
type verifier struct {
	container
	gpus, vfs int // -1 for any number
	pairsFile string
	within    topology.Level
	inOrder   bool
	topology  string // a topology file; "" for none
}

func newVerify() *cobra.Command {
	v := verifier{within: topology.PXB}
	format := oneOf(asTable, asJSON)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check inside a pod that its GPUs and VFs are on the same switches",
		Long: `Check, inside a pod, that every GPU of the container has a VF on its own PCIe switch. The VFs are those that the
environment names (PCIDEVICE_*); the GPUs are those whose device nodes are in /dev/dri (AMD) and /dev (NVIDIA), or those
that NVIDIA_VISIBLE_DEVICES names. Their places are read from sysfs. What a plugin says is checked, not believed. The
container needs no privilege; one that is privileged has the device nodes of all GPUs.`,
		Example: `  tandem verify
  tandem verify --gpus 4 --vfs 4
  tandem verify --within PHB -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v.environment = os.Environ()
			result, err := v.verify()
			if err != nil {
				return err
			}
			if format.format == asJSON {
				err = writeJSON(cmd.OutOrStdout(), result)
			} else {
				_, err = cmd.OutOrStdout().Write(result.table())
			}
			if err == nil && len(result.Failures) > 0 {
				err = errors.New(strings.Join(result.Failures, "; "))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&v.sysfsRoot, "sysfs-root", "/sys", "folder to read the machine from")
	registerTopologyFile(cmd.Flags(), &v.topology)
	cmd.Flags().StringVar(&v.devRoot, "dev-root", "/dev", "folder with the device nodes")
	cmd.Flags().StringVar(&v.procRoot, "proc-root", "/proc", "folder with what NVIDIA's driver tells of its GPUs")
	cmd.Flags().StringVar(&v.pairsFile, "pairs", "/run/tandem/pairs.json", "file in which the plugins tell the container its pairs; it may be absent")
	cmd.Flags().IntVar(&v.gpus, "gpus", -1, "GPUs that there have to be; -1 for one or more")
	cmd.Flags().IntVar(&v.vfs, "vfs", -1, "VFs that there have to be; -1 for one or more")
	cmd.Flags().TextVar(&v.within, "within", topology.PXB, "farthest distance of a pair that is accepted: PIX, PXB, PHB, NODE or SYS")
	cmd.Flags().BoolVar(&v.inOrder, "in-order", false, "fail also when the i-th VF does not pair with the i-th GPU")
	cmd.Flags().VarP(&format, "output", "o", format.usage())
	return cmd
}

// verify is an error only where the container cannot be read.
func (v *verifier) verify() (*verification, error) {
	sys := os.DirFS(v.sysfsRoot)
	tree, err := topology.Read(sys)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", v.sysfsRoot, err)
	}
	if tree, err = placed(tree, v.topology); err != nil {
		return nil, err
	}
	r := &verification{GPUs: []containerGPU{}, VFs: []containerVF{}, Pairs: []pairEntry{}, Failures: []string{}}
	if err := v.find(sys, tree, r); err != nil {
		return nil, err
	}
	r.count("GPU", len(r.GPUs), v.gpus, "no device node of one is in "+v.devRoot)
	r.count("VF", len(r.VFs), v.vfs, "no environment variable PCIDEVICE_* names one; a shell may drop names with a hyphen: run tandem verify without one")
	if err := r.pair(tree, v.within); err != nil {
		return nil, err
	}
	r.InOrder = r.ordered(tree, v.within)
	if v.inOrder && !r.InOrder {
		r.fail("the i-th VF does not pair with the i-th GPU: compare the two lists")
	}
	v.comparePairs(tree, r)
	return r, nil
}

func (r *verification) fail(format string, args ...any) {
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

func (r *verification) count(what string, got, want int, why string) {
	switch {
	case got == 0 && want != 0:
		r.fail("the container has no %s: %s", what, why)
	case want >= 0 && got != want:
		r.fail("the container has %d %ss instead of %d", got, what, want)
	}
}

// pair finds the best pairs that can be made of what the container has: all of them have to be near.
func (r *verification) pair(tree *topology.Tree, within topology.Level) error {
	var gpus, vfs placement.Half
	for _, g := range r.GPUs {
		gpus.Held = append(gpus.Held, placement.Device{ID: g.ID, Address: g.Address})
	}
	for _, vf := range r.VFs {
		vfs.Held = append(vfs.Held, placement.Device{ID: vf.Address.String(), Address: vf.Address})
	}
	choice, err := placement.Choose(tree, placement.Request{GPUs: []placement.Half{gpus}, VFs: []placement.Half{vfs}})
	if err != nil {
		return fmt.Errorf("pair the container's devices: %w", err)
	}
	for _, p := range choice.Pairs {
		r.Pairs = append(r.Pairs, pairEntry{p.GPU.ID, p.VF.ID, p.Distance.Level, p.Distance.Bridges})
		if p.Distance.Level > within {
			r.fail("GPU %s and VF %s are %s apart, farther than %s", p.GPU.ID, p.VF.ID, p.Distance.Level, within)
		}
	}
	return nil
}

// ordered reports whether walking both lists side by side meets the pairs.
func (r *verification) ordered(tree *topology.Tree, within topology.Level) bool {
	if len(r.GPUs) == 0 || len(r.GPUs) != len(r.VFs) {
		return false
	}
	for i, g := range r.GPUs {
		if tree.Distance(g.Address, r.VFs[i].Address).Level > within {
			return false
		}
	}
	return true
}

func (r *verification) table() []byte {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	if len(r.Pairs) > 0 {
		fmt.Fprintln(w, "GPU\tVF\tDISTANCE\tRDMA\tNETDEV")
	}
	for _, p := range r.Pairs {
		vf := r.vf(p.VF)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.GPU, p.VF, p.Distance, cmp.Or(strings.Join(vf.RDMA, ","), "-"), cmp.Or(strings.Join(vf.Netdevs, ","), "-"))
	}
	if len(r.Pairs) > 0 {
		fmt.Fprintln(w)
	}
	_ = w.Flush() // to memory
	verdict, order := "verified", "in the order of the lists"
	if len(r.Failures) > 0 {
		verdict = "not verified"
	}
	if !r.InOrder {
		order = "not " + order
	}
	file := "pairs.json " + r.PairsFile
	if r.PairsFile == "absent" {
		file = "no pairs.json" // which is no fault: the pool has to ask for it
	}
	fmt.Fprintf(&out, "%s: %d GPUs, %d VFs, pairs %s, %s\n", verdict, len(r.GPUs), len(r.VFs), order, file)
	return out.Bytes()
}

func (r *verification) vf(address string) containerVF {
	for _, vf := range r.VFs {
		if vf.Address.String() == address {
			return vf
		}
	}
	return containerVF{}
}
