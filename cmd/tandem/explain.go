package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
)

// decision is one question of the kubelet and what came of it, as -o json prints it.
type decision struct {
	Time        time.Time           `json:"time"`
	Container   string              `json:"container"` // namespace/pod/container
	Resource    string              `json:"resource"`
	Asked       bool                `json:"asked"` // false: the kubelet had no choice, or was answered without the coordinator
	Size        uint32              `json:"size"`
	Available   uint32              `json:"available"`
	MustInclude []string            `json:"mustInclude,omitempty"`
	Known       string              `json:"known,omitempty"`   // who asks, and what told it
	Chosen      []string            `json:"chosen,omitempty"`  // the answer
	Planned     map[string][]string `json:"planned,omitempty"` // by resource, for the rest of the request
	Pairs       []decisionPair      `json:"pairs,omitempty"`
	Reason      string              `json:"reason,omitempty"`
	Switches    []decisionSwitch    `json:"switches,omitempty"`
	Took        time.Duration       `json:"tookNanoseconds,omitempty"`
	Allocated   []string            `json:"allocated,omitempty"` // in the order in which the container lists them
	AllocatedAt *time.Time          `json:"allocatedAt,omitempty"`
	Refusal     string              `json:"refusal,omitempty"`
}

type decisionPair struct {
	GPU      string `json:"gpu"`
	VF       string `json:"vf"`
	Distance string `json:"distance"`
}

type decisionSwitch struct {
	Name      string `json:"name"`
	FreeGPUs  uint32 `json:"freeGPUs"`
	FreeVFs   uint32 `json:"freeVFs"`
	TakenGPUs uint32 `json:"takenGPUs"`
	TakenVFs  uint32 `json:"takenVFs"`
	Alone     string `json:"alone,omitempty"` // what this switch alone would have given
}

func newExplain() *cobra.Command {
	var runDir, container string
	format := asTable
	cmd := &cobra.Command{
		Use:   "explain [NAMESPACE/]POD",
		Short: "Tell why a pod's containers got their devices",
		Long: `Ask the running plugins over their socket what they decided for a pod: what the kubelet asked, in which order, what was
known of the container and by which source, what was chosen and planned, and what each switch had free at that time and
would have given alone. The last decisions are kept in memory, and lost when the plugin that serves ends. It needs the rights of the plugins, root's.`,
		Example: `  tandem explain train-0
  tandem explain team/train-0 --container worker -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("want one pod: [NAMESPACE/]POD")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, pod, ok := strings.Cut(args[0], "/")
			if !ok {
				namespace, pod = "", args[0]
			}
			if pod == "" || strings.Contains(pod, "/") {
				return usage("pod %q: want [NAMESPACE/]POD", args[0])
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), statusTimeout)
			defer cancel()
			answer, err := coordination.Explain(ctx, runDir, namespace, pod, container)
			if err != nil {
				return err
			}
			decisions := newDecisions(answer)
			if format == asJSON {
				return writeJSON(cmd.OutOrStdout(), decisions)
			}
			_, err = cmd.OutOrStdout().Write(explanation(decisions))
			return err
		},
	}
	cmd.Flags().StringVarP(&container, "container", "c", "", "one container of the pod; all without it")
	cmd.Flags().StringVar(&runDir, "run-dir", "/run/tandem", "the plugins' --run-dir")
	cmd.Flags().VarP(&format, "output", "o", outputUsage)
	return cmd
}

func newDecisions(answer *api.ExplainResponse) []decision {
	decisions := []decision{}
	for _, m := range answer.GetDecisions() {
		d := decision{
			Time: time.Unix(0, m.GetTimeUnixNano()), Container: ownerText(m.GetContainer()), Resource: m.GetResource(), Asked: m.GetAsked(),
			Size: m.GetSize(), Available: m.GetAvailable(), MustInclude: m.GetMustInclude(), Known: m.GetKnown(), Chosen: m.GetChosen(),
			Reason: m.GetReason(), Took: time.Duration(m.GetTookNano()), Allocated: m.GetAllocated(), Refusal: m.GetRefusal(),
		}
		for name, ids := range m.GetPlanned() {
			if d.Planned == nil {
				d.Planned = map[string][]string{}
			}
			d.Planned[name] = ids.GetIds()
		}
		for _, p := range m.GetPairs() {
			d.Pairs = append(d.Pairs, decisionPair{p.GetGpu(), p.GetVf(), p.GetDistance()})
		}
		for _, o := range m.GetOptions() {
			d.Switches = append(d.Switches, decisionSwitch{o.GetSwitch(), o.GetFreeGpus(), o.GetFreeVfs(), o.GetTakenGpus(), o.GetTakenVfs(), o.GetResult()})
		}
		if at := m.GetAllocatedUnixNano(); at != 0 {
			allocated := time.Unix(0, at)
			d.AllocatedAt = &allocated
		}
		decisions = append(decisions, d)
	}
	return decisions
}

// explanation is for people: the decisions one after the other, in the order in which the kubelet came.
func explanation(decisions []decision) []byte {
	var out bytes.Buffer
	for i, d := range decisions {
		if i > 0 {
			fmt.Fprintln(&out)
		}
		fmt.Fprintf(&out, "%d. %s %s of %s\n", i+1, d.Time.Format(time.RFC3339Nano), d.Resource, d.Container)
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		d.facts(w)
		w.Flush() // into memory
		d.choices(&out)
	}
	return out.Bytes()
}

func (d decision) facts(w *tabwriter.Writer) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "   %s\t%s\n", name, value)
		}
	}
	if d.Asked {
		line("asked", fmt.Sprintf("%d of %d offered, answered after %s", d.Size, d.Available, d.Took.Round(time.Microsecond)))
		line("must include", strings.Join(d.MustInclude, " "))
		line("known", d.Known)
		line("chosen", strings.Join(d.Chosen, " "))
		for _, name := range slices.Sorted(maps.Keys(d.Planned)) {
			line("planned", name+" "+strings.Join(d.Planned[name], " "))
		}
		line("result", d.Reason)
	} else {
		line("not asked", "the kubelet had no choice, or was answered without the coordinator")
	}
	switch {
	case d.Refusal != "":
		line("refused", d.Refusal)
	case d.AllocatedAt != nil:
		line("allocated", strings.Join(d.Allocated, " "))
	default:
		line("allocated", "nothing: the kubelet went on without it")
	}
}

func (d decision) choices(out *bytes.Buffer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(d.Pairs) > 0 {
		fmt.Fprintln(w, "\n   GPU\tVF\tDISTANCE")
	}
	for _, p := range d.Pairs {
		fmt.Fprintf(w, "   %s\t%s\t%s\n", p.GPU, p.VF, p.Distance)
	}
	w.Flush() // into memory
	if len(d.Switches) > 0 {
		fmt.Fprintln(w, "\n   SWITCH\tGPUS TAKEN/FREE\tVFS TAKEN/FREE\tALONE IT WOULD HAVE GIVEN")
	}
	for _, s := range d.Switches {
		alone := s.Alone
		if alone == "" {
			alone = "too few devices"
		}
		fmt.Fprintf(w, "   %s\t%d/%d\t%d/%d\t%s\n", s.Name, s.TakenGPUs, s.FreeGPUs, s.TakenVFs, s.FreeVFs, alone)
	}
	w.Flush() // into memory
}
